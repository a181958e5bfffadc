//! Files of policies: whatever is written is read or refused with a message.

/// A file of policies as bytes: what is right says of any connection whose it is.
pub fn policies(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    match tollway_shape::policies::Policies::parse("fuzz.toml", text) {
        Ok(policies) => {
            let regime = policies.into_regime();
            let classes = regime.tenants.iter().map(|tenant| tenant.classes.len() as u32).sum::<u32>();
            for (remote, cgroup) in
                [("192.0.2.1:443", Some("/a.slice/docker-1.scope")), ("[2001:db8::1]:1", None)]
            {
                let who = tollway_shape::Identity {
                    local: "10.0.0.1:80".parse().expect("an address"),
                    remote: remote.parse().expect("an address"),
                    uid: 33,
                    cgroup,
                    stays: false,
                };
                assert!(regime.rules.class_of(&who).is_none_or(|class| class < classes));
            }
        }
        Err(error) => {
            let end = |mistake: &tollway_scenario::file::Mistake| mistake.span.offset() + mistake.span.len();
            assert!(error.mistakes().iter().all(|mistake| end(mistake) <= text.len().max(1) + 1));
        }
    }
}
