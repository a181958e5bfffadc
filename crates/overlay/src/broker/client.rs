//! Execution of a client's operations.

use tollway_law::Time;

use super::keep::kept_pattern;
use super::kind::Kind;
use super::route::Interest;
use super::session::{Block, Subscription};
use super::{Broker, CONNECTIONS, Received, Then};
use crate::nats::parse::{Limits, Op, Parsed, parse};
use crate::nats::subject::{is_literal, is_pattern};
use crate::nats::write::{Connect, error_line};
use crate::rules::{Proof, Slow, same_secret};

impl Broker {
    /// Handles a client's input.
    pub fn receive(&mut self, now: Time, key: usize, bytes: &[u8]) -> Received {
        let limits = Limits { body: self.rules.payload, ..Limits::default() };
        let session = &mut self.sessions[key];
        session.heard_at = now;
        session.pings = 0;
        let received = self.execute(now, key, bytes, &limits);
        if let Some(sites) = &mut self.sites {
            sites.batch.send(now, &mut sites.daemon);
        }
        received
    }

    fn execute(&mut self, now: Time, key: usize, bytes: &[u8], limits: &Limits) -> Received {
        let mut used = 0;
        let before = self.totals.delivered + self.totals.dropped;
        loop {
            if self.sessions[key].closing.is_some() {
                return Received { used, then: Then::Close };
            }
            match parse(&bytes[used..], limits) {
                Ok(Parsed::Part(need)) => return Received { used, then: Then::Read(need) },
                Ok(Parsed::Op(op, len)) => {
                    if !self.operate(now, key, op) {
                        return Received { used, then: Then::Wait };
                    }
                    used += len;
                    if self.sessions[key].verbose && !matches!(op, Op::Pong | Op::Ping | Op::Ignored) {
                        self.tell(key, "+OK\r\n");
                    }
                    let session = &mut self.sessions[key];
                    // Answers have no price: a client that does not read them is not read.
                    if std::mem::take(&mut session.replied)
                        && session.blocked.is_none()
                        && session.out.len() >= self.rules.buffer
                    {
                        session.blocked = Some(Block::Output);
                    }
                    if session.blocked.is_some() {
                        return Received { used, then: Then::Wait };
                    }
                    if self.totals.delivered + self.totals.dropped - before >= TURN {
                        return Received { used, then: Then::Again };
                    }
                }
                Err(error) => {
                    self.fail(key, &error.to_string());
                    return Received { used, then: Then::Close };
                }
            }
        }
    }

    /// Executes a client's operation. Returns false if the client is blocked.
    ///
    /// The operation must be executed again once the client is runnable.
    fn operate(&mut self, now: Time, key: usize, op: Op<'_>) -> bool {
        match op {
            Op::Pub(publish) => match self.tenant(key) {
                Some(tenant) => return self.publish(now, key, tenant, publish),
                None => self.fail(key, "Authorization Violation"),
            },
            Op::Ping => self.tell(key, "PONG\r\n"),
            Op::Pong => self.ponged(key),
            Op::Ignored => {}
            Op::Sub { pattern, queue, sid } => match self.tenant(key) {
                Some(tenant) => self.subscribe(key, tenant, pattern, queue, sid),
                None => self.fail(key, "Authorization Violation"),
            },
            Op::Unsub { sid, max: None } if self.sessions[key].kept.contains_key(sid) => {
                self.end_kept(self.sessions[key].kept[sid]);
            }
            Op::Unsub { sid, max } => {
                if let Some(&sub) = self.sessions[key].subs.get(sid) {
                    self.subs[sub].max = max;
                    if max.is_none_or(|max| self.subs[sub].delivered >= max) {
                        self.drop_subscription(sub);
                    }
                }
            }
            Op::Connect(json) => self.connect(key, json),
        }
        true
    }

    /// The tenant of a client; without `CONNECT`, the tenant without proof.
    fn tenant(&mut self, key: usize) -> Option<usize> {
        if self.sessions[key].tenant.is_none() {
            let open = self.tenants.iter().position(|one| one.rules.proof == Proof::None && !one.gone);
            self.admit(key, open?);
        }
        self.sessions[key].tenant
    }

    fn connect(&mut self, key: usize, json: &[u8]) {
        let Ok(connect) = serde_json::from_slice::<Connect>(json) else {
            return self.fail(key, "Parser Error");
        };
        let session = &mut self.sessions[key];
        session.verbose = connect.verbose;
        session.echo = connect.echo.unwrap_or(true);
        session.headers = connect.headers;
        session.no_responders = connect.headers && connect.no_responders;
        session.name = connect.name.clone().unwrap_or_default().chars().take(MOST_NAME).collect();
        if session.tenant.is_some() {
            // A connection cannot change its tenant.
            return;
        }
        match self.authenticate(key, &connect) {
            Some(tenant) => self.admit(key, tenant),
            None => self.fail(key, "Authorization Violation"),
        }
    }

    /// Finds the tenant whose proof the client presents.
    fn authenticate(&self, key: usize, connect: &Connect) -> Option<usize> {
        let certified = self.sessions[key].certified.as_deref();
        let user = connect.user.as_deref();
        self.tenants.iter().position(|tenant| {
            let rules = &tenant.rules;
            let named = user.is_none_or(|user| user == rules.name);
            let same = |known: &Option<String>, told: &Option<String>| {
                matches!((known, told), (Some(known), Some(told)) if same_secret(known, told))
            };
            !tenant.gone
                && named
                && match &rules.proof {
                    Proof::None => certified.is_none_or(|name| name == rules.name),
                    Proof::Secret { password, token } => {
                        (user.is_some() && same(password, &connect.pass)) || same(token, &connect.auth_token)
                    }
                    Proof::Certificate => certified == Some(rules.name.as_str()),
                }
        })
    }

    fn admit(&mut self, key: usize, tenant: usize) {
        if self.tenants[tenant].connections >= self.tenants[tenant].rules.connections {
            return self.fail(key, CONNECTIONS);
        }
        self.tenants[tenant].connections += 1;
        self.sessions[key].tenant = Some(tenant);
        if self.sessions[key].congested {
            self.tenants[tenant].congested += 1;
        }
    }

    fn subscribe(&mut self, key: usize, tenant: usize, asked: &[u8], queue: Option<&[u8]>, sid: &[u8]) {
        if let Some(kept) = kept_pattern(asked)
            && queue.is_none()
            && is_pattern(kept.1)
            && Kind::of(kept.1) == Kind::Plain
        {
            if !self.sessions[key].kept.contains_key(sid)
                && let Err(why) = self.keep(key, tenant, kept, sid)
            {
                let asked = String::from_utf8_lossy(asked);
                let line = format!("Permissions Violation for Subscription to \"{asked}\": {why}");
                self.tell(key, &error_line(&line));
            }
            return;
        }
        let default = self.tenants[tenant].rules.slow;
        let (slow, pattern) = Slow::of_pattern(asked).unwrap_or((default, asked));
        let allowed = is_pattern(pattern) && Kind::of(pattern).allows(pattern, queue);
        if !allowed || queue.is_some_and(|queue| !is_literal(queue)) {
            return self.tell(key, &error_line("Invalid Subject"));
        }
        if self.sessions[key].subs.contains_key(sid) {
            return;
        }
        let full = self.tenants[tenant].is_full();
        if full || !self.join_group(tenant, pattern, queue) {
            return self.fail(key, "maximum subscriptions exceeded");
        }
        let entry = self.subs.vacant_entry();
        let sub = entry.key();
        let interest = Interest::Local { sub, queue: queue.map(Into::into) };
        self.sessions[key].subs.insert(sid.into(), entry.key());
        self.tenants[tenant].routes.insert(pattern, interest.clone());
        self.tenants[tenant].subscriptions += 1;
        entry.insert(Subscription {
            session: key,
            kept: None,
            sid: sid.into(),
            pattern: pattern.into(),
            interest,
            slow,
            delivered: 0,
            max: None,
        });
        self.show_view(tenant, sub, pattern);
    }

    pub(super) fn drop_subscription(&mut self, sub: usize) {
        let gone = self.subs.remove(sub);
        let session = &mut self.sessions[gone.session];
        session.subs.remove(&gone.sid);
        if let Some(tenant) = session.tenant {
            self.tenants[tenant].routes.remove(&gone.pattern, &gone.interest);
            self.tenants[tenant].subscriptions -= 1;
            self.leave_group(tenant, &gone.pattern, gone.interest.queue());
        }
    }

    /// Blocks a publisher until `slow` has drained.
    pub(super) fn wait_for(&mut self, key: usize, slow: usize) {
        self.sessions[key].blocked = Some(Block::Receiver(slow));
        // The publisher that has been idle longest resumes first.
        let turn = |waiter: usize| self.sessions[waiter].turn;
        let at = self.sessions[slow].waiters.partition_point(|&waiter| turn(waiter) <= turn(key));
        self.sessions[slow].waiters.insert(at, key);
    }
}

/// Deliveries after which other clients are served: some milliseconds.
const TURN: u64 = 8192;
/// Limit of a client's name, in characters.
const MOST_NAME: usize = 64;
