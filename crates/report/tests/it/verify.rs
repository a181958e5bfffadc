//! XCP on 200 random networks reaches the theoretical steady state.

use tollway_report::verify::{Bounds, Rest, Verified, Verify};

fn rests(verified: &Verified) -> impl Iterator<Item = &Rest> {
    verified.cases.iter().map(|case| case.rest.as_ref().expect("a steady state"))
}

#[test]
fn two_hundred_networks() {
    let verified = Verify::law("xcp", 200, 1, 0).expect("a law").run(&|_| true).expect("every network runs");
    assert_eq!(verified.cases.len(), 200);
    assert!(verified.within(), "{}", verified.to_text(200));
    // Most are far within: the worst flow of the median network, and of the second worst one.
    let mut each: Vec<f64> = rests(&verified).map(|rest| rest.deviation.abs()).collect();
    each.sort_by(f64::total_cmp);
    let tolerance = Bounds::of(verified.verify.aim).tolerance;
    assert!(each[100] < 0.01 && each[198] < 0.9 * tolerance, "{} {}", each[100], each[198]);
    assert!(rests(&verified).map(|rest| rest.judged).sum::<usize>() > 1000);
}

/// FCP and RCP on a few networks, each within 3 %. `papers/fcp/num.toml` covers two hundred.
#[test]
fn prices_and_rates_come_to_their_allocations() {
    for law in ["fcp", "rcp"] {
        let verified =
            Verify::law(law, 12, 1001, 0).expect("a law").run(&|_| true).expect("every network runs");
        assert!(verified.within(), "{}", verified.to_text(200));
        assert!(rests(&verified).map(|rest| rest.judged).sum::<usize>() > 50);
        let budgets_are_spent = rests(&verified).all(|rest| rest.balance.is_some() == (law == "fcp"));
        assert!(budgets_are_spent);
    }
}
