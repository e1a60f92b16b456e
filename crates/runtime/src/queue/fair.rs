//! A queue in which shares take turns.

use std::collections::{BTreeMap, HashMap};

use super::Share;

/// The waiting keys of one lane and urgency. Shares take turns; within a share the order is that of the tickets.
#[derive(Debug)]
pub(super) struct Fair<K> {
    flows: HashMap<Share, Flow<K>>,
    /// The shares whose keys may be taken, by turn.
    turns: BTreeMap<u64, Share>,
    /// The shares whose system holds too many keys, by system.
    closed: HashMap<String, Vec<Share>>,
    next_turn: u64,
    len: usize,
}

/// The waiting keys of one share.
#[derive(Debug)]
struct Flow<K> {
    keys: BTreeMap<u64, K>,
    /// None while the system of the share holds too many keys.
    turn: Option<u64>,
}

impl<K> Fair<K> {
    pub(super) fn new() -> Self {
        Self { flows: HashMap::new(), turns: BTreeMap::new(), closed: HashMap::new(), next_turn: 0, len: 0 }
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Adds a key.
    pub(super) fn insert(&mut self, share: Share, ticket: u64, key: K) {
        self.len += 1;
        if let Some(flow) = self.flows.get_mut(&share) {
            flow.keys.insert(ticket, key);
            return;
        }
        let turn = self.line_up(share.clone());
        let keys = BTreeMap::from([(ticket, key)]);
        self.flows.insert(share, Flow { keys, turn: Some(turn) });
    }

    /// Removes a key.
    pub(super) fn remove(&mut self, share: &Share, ticket: u64) {
        let Some(flow) = self.flows.get_mut(share) else { return };
        if flow.keys.remove(&ticket).is_some() {
            self.len -= 1;
        }
        if !flow.keys.is_empty() {
            return;
        }
        match (flow.turn, &share.system) {
            (Some(turn), _) => {
                self.turns.remove(&turn);
            }
            (None, Some(system)) => {
                if let Some(closed) = self.closed.get_mut(system) {
                    closed.retain(|each| each != share);
                }
            }
            (None, None) => {}
        }
        self.flows.remove(share);
    }

    /// Takes the first key of the first share that may start. A share that may not is skipped until its system is reopened.
    pub(super) fn take(&mut self, may_start: impl Fn(&Share) -> bool) -> Option<K> {
        loop {
            let (_, share) = self.turns.pop_first()?;
            let Some(flow) = self.flows.get_mut(&share) else { continue };
            if let Some(system) = share.system.as_ref().filter(|_| !may_start(&share)) {
                flow.turn = None;
                self.closed.entry(system.clone()).or_default().push(share);
                continue;
            }

            let taken = flow.keys.pop_first();
            if flow.keys.is_empty() {
                self.flows.remove(&share);
            } else {
                let turn = self.line_up(share.clone());
                if let Some(flow) = self.flows.get_mut(&share) {
                    flow.turn = Some(turn);
                }
            }
            let Some((_, key)) = taken else { continue };
            self.len -= 1;
            return Some(key);
        }
    }

    /// Lets the shares of a system take turns again.
    pub(super) fn reopen(&mut self, system: &str) {
        for share in self.closed.remove(system).unwrap_or_default() {
            let turn = self.line_up(share.clone());
            if let Some(flow) = self.flows.get_mut(&share) {
                flow.turn = Some(turn);
            }
        }
    }

    /// Gives a share the last turn.
    fn line_up(&mut self, share: Share) -> u64 {
        let turn = self.next_turn;
        self.next_turn += 1;
        self.turns.insert(turn, share);
        turn
    }
}
