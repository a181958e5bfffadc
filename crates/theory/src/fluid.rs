//! Completion times of flows that arrive, send a given amount and leave, in a fluid model.

use crate::{Flow, MaxMin, NetworkError};

/// A flow with an amount of data to send.
#[derive(Clone, Debug, PartialEq)]
pub struct Job {
    /// Arrival, in seconds.
    pub at: f64,
    /// Data to send, in the unit of capacities times seconds; infinite for a flow that never ends.
    pub amount: f64,
    /// The links it crosses, by index.
    pub links: Vec<usize>,
}

/// The completion time of each job, in seconds on the clock of [`Job::at`], if all present jobs
/// have their max–min fair rates at every moment.
///
/// Infinite for a job that never ends, and for one whose links have no capacity.
///
/// Rates are constant between two arrivals or departures, and computed anew by
/// [`max_min()`](crate::max_min()) at each of them (processor sharing over a network: Massoulié &
/// Roberts, *Bandwidth sharing and admission control for elastic traffic*, 2000). The cost is one
/// allocation among the present jobs for each arrival and each departure.
///
/// # Errors
/// As [`Network::check`](crate::Network::check). A job without links counts as a flow without
/// bound.
pub fn completions(capacities: &[f64], jobs: &[Job]) -> Result<Vec<f64>, NetworkError> {
    let mut order: Vec<usize> = (0..jobs.len()).collect();
    order.sort_by(|&a, &b| jobs[a].at.total_cmp(&jobs[b].at));
    let mut arrivals = order.into_iter().peekable();
    let mut done = vec![f64::INFINITY; jobs.len()];
    // Present: the job of each flow, and what it has left.
    let (mut filling, mut flows) = (MaxMin::default(), Vec::new());
    let mut present: Vec<(usize, f64)> = Vec::new();
    let mut now = 0.0_f64;
    loop {
        let rates = filling.rates(capacities, &flows)?;
        let until =
            |(&(_, left), &rate): (&(usize, f64), &f64)| if rate > 0.0 { left / rate } else { f64::INFINITY };
        let first_done = now + present.iter().zip(rates).map(until).fold(f64::INFINITY, f64::min);
        let next_comes = arrivals.peek().map_or(f64::INFINITY, |&job| jobs[job].at.max(now));
        let next = first_done.min(next_comes);
        if next == f64::INFINITY {
            return Ok(done);
        }
        let span = next - now;
        now = next;
        for i in (0..present.len()).rev() {
            let (job, left) = &mut present[i];
            *left -= rates[i] * span;
            // Data left only by rounding: less than a nanosecond's worth, or, late in a run, less
            // than the last bit of the time.
            let done_now = *left <= rates[i] * 1e-9 || rates[i] > 0.0 && now + *left / rates[i] <= now;
            if done_now && *left < f64::INFINITY {
                done[*job] = now;
                present.swap_remove(i);
                flows.swap_remove(i);
            }
        }
        while let Some(job) = arrivals.next_if(|&job| jobs[job].at <= now) {
            present.push((job, jobs[job].amount));
            flows.push(Flow { links: jobs[job].links.clone(), ..Flow::default() });
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn job(at: f64, amount: f64, links: &[usize]) -> Job {
        Job { at, amount, links: links.to_vec() }
    }

    /// After months the last bit of the time is more than a nanosecond.
    #[test]
    fn a_backlog_of_months_comes_to_an_end() {
        let jobs: Vec<Job> = (0..25).map(|i| job(0.1 + 0.19 * f64::from(i), 8.2e12, &[0])).collect();
        let (tell, told) = std::sync::mpsc::channel();
        std::thread::spawn(move || tell.send(completions(&[1e7], &jobs).unwrap()));
        let done = told.recv_timeout(std::time::Duration::from_secs(60)).expect("it comes to an end");
        let last = done.iter().copied().fold(0.0, f64::max);
        assert!((last / (0.1 + 25.0 * 8.2e5) - 1.0).abs() < 1e-9, "{last}");
    }

    #[test]
    fn a_link_is_shared_while_there_are_two() {
        // Alone for a second at 10, then two share; the second has 5 to go at 5, then the first 5
        // more at 10.
        let done = completions(&[10.0], &[job(1.0, 20.0, &[0]), job(2.0, 5.0, &[0])]).unwrap();
        assert!((done[1] - 3.0).abs() < 1e-9 && (done[0] - 3.5).abs() < 1e-9, "{done:?}");
    }

    #[test]
    fn what_is_free_elsewhere_is_used() {
        // One over both links and one on each: 2, 2 and 8; then 4 and 8, then all of a link.
        let jobs = [job(0.0, 4.0, &[0, 1]), job(0.0, 4.0, &[1]), job(0.0, 20.0, &[0])];
        let done = completions(&[10.0, 4.0], &jobs).unwrap();
        assert!((done[0] - 2.0).abs() < 1e-9 && (done[1] - 2.0).abs() < 1e-9, "{done:?}");
        assert!((done[2] - 2.4).abs() < 1e-9, "{done:?}");
    }

    #[test]
    fn endless_jobs_share_and_never_end() {
        let done = completions(&[10.0], &[job(0.0, f64::INFINITY, &[0]), job(1.0, 5.0, &[0])]).unwrap();
        assert_eq!(done[0], f64::INFINITY);
        assert!((done[1] - 2.0).abs() < 1e-9);
    }

    proptest! {
        /// On one link no job ends sooner than alone, and the last one ends when all work is done
        /// without a pause.
        #[test]
        fn a_link_works_without_pause(sizes in prop::collection::vec(0.1f64..10.0, 1..30)) {
            let jobs: Vec<Job> = sizes.iter().map(|&size| job(0.0, size, &[0])).collect();
            let done = completions(&[2.0], &jobs).unwrap();
            for (size, done) in sizes.iter().zip(&done) {
                prop_assert!(*done >= size / 2.0 - 1e-6);
            }
            let last = done.iter().copied().fold(0.0, f64::max);
            prop_assert!((last - sizes.iter().sum::<f64>() / 2.0).abs() < 1e-6);
        }
    }
}
