//! Mutexes whose poisoning is ignored.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks a mutex, even if another thread panicked while it held the lock.
///
/// Use it only for data that is valid after every single statement, so that a panic cannot leave it half written.
pub fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_of_another_holder_is_ignored() {
        let mutex = Mutex::new(1);
        std::thread::scope(|scope| {
            let holder = scope.spawn(|| {
                let _held = mutex.lock().unwrap();
                panic!("while holding the lock");
            });
            assert!(holder.join().is_err());
        });
        assert_eq!(*lock(&mutex), 1);
    }
}
