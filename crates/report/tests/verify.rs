//! XCP on 200 random networks comes to rest where the theory says.

use tollway_report::verify::{Bounds, Verify};

/// Networks of which one flow lies outside the tolerance, and by how much at most. In 131 it is f4, which crosses two links that
/// each hold flows; why is not proven (docs/src/theory.md, "What verification leaves open").
const OUTSIDE: [u64; 1] = [131];
const FARTHEST: f64 = 0.055;

#[test]
fn two_hundred_networks() {
    let verified = Verify::law("xcp", 200, 1, 0).expect("a law").run(&|_| true).expect("every network runs");
    assert_eq!(verified.cases.len(), 200);
    let outside: Vec<u64> =
        verified.cases.iter().filter(|case| !case.problems.is_empty()).map(|case| case.seed).collect();
    assert_eq!(outside, OUTSIDE, "{}", verified.to_text(200));
    let worst = verified.worst().expect("there is one");
    assert!(worst.deviation.abs() < FARTHEST, "{}", verified.to_text(200));
    // Most of them are far within: the worst flow of the median network.
    let mut each: Vec<f64> = verified.cases.iter().map(|case| case.deviation.abs()).collect();
    each.sort_by(f64::total_cmp);
    assert!(each[100] < Bounds::of(verified.verify.aim).tolerance / 2.0, "{}", each[100]);
    assert!(verified.cases.iter().map(|case| case.judged).sum::<usize>() > 1000);
}

/// FCP and RCP on a few, each within 3 %; two hundred are an experiment's, `papers/fcp/num.toml`.
#[test]
fn prices_and_rates_come_to_their_allocations() {
    for law in ["fcp", "rcp"] {
        let verified =
            Verify::law(law, 12, 1001, 0).expect("a law").run(&|_| true).expect("every network runs");
        assert!(verified.within(), "{}", verified.to_text(200));
        assert!(verified.cases.iter().map(|case| case.judged).sum::<usize>() > 50);
        let budgets_are_spent = verified.cases.iter().all(|case| case.balance.is_some() == (law == "fcp"));
        assert!(budgets_are_spent);
    }
}
