//! Fuzz targets: random inputs for a function, and the inputs of its corpus.
//!
//! A target builds its inputs from random choices ([`Draw`]), because random bytes would never get past a parser, and
//! often starts from a file of its corpus.
//!
//! By default every run checks the same sequence of inputs, so that a change is judged by what it changed. To look for new
//! failures, `VITISTACK_FUZZ_RANDOM` lets bolero choose the inputs; it shrinks an input that fails and prints it with the
//! seed that replays it.

mod draw;

use std::{
    cell::Cell,
    env,
    fmt::{self, Debug},
    fs::{self, File},
    io::{Write as _, stderr},
    os::unix::fs::FileExt as _,
    panic::RefUnwindSafe,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use bolero::generator::{ValueGenerator as _, produce_with};
use rand::{Rng as _, RngExt as _, SeedableRng as _, rngs::StdRng};

pub use draw::{Draw, Vocabulary};

/// The environment variable with the seconds for each target.
const SECONDS_VARIABLE: &str = "VITISTACK_FUZZ_SECONDS";
/// The environment variable that requests new inputs instead of the fixed sequence.
const RANDOM_VARIABLE: &str = "VITISTACK_FUZZ_RANDOM";
/// The environment variable with a file that one target is replayed from.
const REPLAY_VARIABLE: &str = "VITISTACK_FUZZ_REPLAY";
/// The time for each target if the variable is not set.
const DEFAULT_TIME: Duration = Duration::from_millis(200);
/// How long an input that fails is shrunk.
const SHRINK_TIME: Duration = Duration::from_secs(10);
/// The seed of the fixed sequence of inputs.
const SEED: u64 = 1;
/// The maximum number of bytes from which an input is built.
const MAX_CHOICES: usize = 1024;

/// One fuzz target.
#[derive(Clone, Debug)]
pub struct Target {
    name: &'static str,
    corpus: Vec<(PathBuf, Vec<u8>)>,
}

impl Target {
    /// Returns the target of a crate, with the files in `tests/it/fuzz/corpus/<name>` of the crate.
    ///
    /// # Panics
    /// If there is no such file.
    #[must_use]
    pub fn new(manifest_directory: &str, name: &'static str) -> Self {
        let directory = Path::new(manifest_directory).join("tests/it/fuzz/corpus").join(name);
        let entries = fs::read_dir(&directory).into_iter().flatten().flatten();
        let mut corpus: Vec<(PathBuf, Vec<u8>)> =
            entries.filter_map(|entry| Some((entry.path(), fs::read(entry.path()).ok()?))).collect();
        corpus.sort();
        assert!(!corpus.is_empty(), "fuzz {name}: {} has no files", directory.display());
        Self { name, corpus }
    }

    /// Returns the files of the corpus, as `read` understands them.
    pub fn corpus<T>(&self, read: impl Fn(&[u8]) -> T) -> Vec<T> {
        self.corpus.iter().map(|(_, content)| read(content)).collect()
    }

    /// Checks every file of the corpus, and then inputs that `build` returns until the time is over. Prints how many.
    pub fn run<T: Debug + 'static>(
        &self,
        read: impl Fn(&[u8]) -> T,
        build: impl Fn(&mut Draw<'_>) -> T,
        check: impl Fn(&T),
    ) {
        let name = self.name;
        let input_of = |choices: Vec<u8>| Input { value: build(&mut Draw::new(&choices)), choices };
        if let Some(path) = env::var_os(REPLAY_VARIABLE) {
            let input = input_of(read_choices(Path::new(&path)));
            let _ = writeln!(stderr(), "fuzz {name}: {input:#?}");
            return check(&input.value);
        }

        for (path, content) in &self.corpus {
            let shown = ShownOnPanic(path);
            check(&read(content));
            std::mem::forget(shown);
        }

        let count = Counter(Cell::new(self.corpus.len()));
        let path = env::temp_dir().join(format!("vitistack-fuzz-{name}.input"));
        let last = env::var_os(SECONDS_VARIABLE).and_then(|_| File::create(path).ok());
        let checked = Unwinding(|input: &Input<T>| {
            // An input that aborts the process leaves nothing but this file.
            if let Some(file) = &last {
                write_choices(file, &input.choices);
            }
            count.0.set(count.0.get() + 1);
            check(&input.value);
        });
        if env::var_os(RANDOM_VARIABLE).is_some() {
            bolero::check!(name = name)
                .with_test_time(time())
                .with_shrink_time(SHRINK_TIME)
                .with_generator(produce_with::<Vec<u8>>().len(0..=MAX_CHOICES).map_gen(input_of))
                .for_each(|input: &Input<T>| checked.call(input));
        } else {
            for choices in fixed_sequence(time()) {
                let input = input_of(choices);
                let shown = ShownOnPanic(&input);
                checked.call(&input);
                std::mem::forget(shown);
            }
        }

        // Past the macros, so that the test harness does not capture it.
        let _ = writeln!(stderr(), "fuzz {name}: {} inputs", count.0.get());
    }
}

/// Returns the same sequence of choices in every run, until the time is over.
fn fixed_sequence(time: Duration) -> impl Iterator<Item = Vec<u8>> {
    let mut random = StdRng::seed_from_u64(SEED);
    let start = Instant::now();
    std::iter::from_fn(move || {
        let mut choices = vec![0; random.random_range(0..=MAX_CHOICES)];
        random.fill_bytes(&mut choices);
        (start.elapsed() < time).then_some(choices)
    })
}

/// The time for each target.
fn time() -> Duration {
    let Ok(text) = env::var(SECONDS_VARIABLE) else { return DEFAULT_TIME };
    let seconds = text.parse().unwrap_or(f64::NAN);
    assert!((0.0..1e6).contains(&seconds), "{SECONDS_VARIABLE} must be a number of seconds, not {text:?}");
    Duration::from_secs_f64(seconds)
}

/// Writes choices over the content of a file: their number in two bytes, and the choices.
fn write_choices(file: &File, choices: &[u8]) {
    let count = u16::try_from(choices.len()).unwrap_or_default().to_be_bytes();
    let _ = file.write_all_at(&[&count, choices].concat(), 0);
}

/// Reads choices from a file.
fn read_choices(path: &Path) -> Vec<u8> {
    let content = fs::read(path).unwrap_or_default();
    let Some((count, choices)) = content.split_first_chunk() else { return Vec::new() };
    choices.iter().copied().take(u16::from_be_bytes(*count).into()).collect()
}

/// An input, and the choices that it was built from.
struct Input<T> {
    value: T,
    choices: Vec<u8>,
}

impl<T: Debug> Debug for Input<T> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.value.fmt(formatter)
    }
}

/// Prints the input, or the file of the corpus, whose check panics.
struct ShownOnPanic<'a>(&'a dyn Debug);

impl Drop for ShownOnPanic<'_> {
    fn drop(&mut self) {
        let _ = writeln!(stderr(), "the input {:#?} fails", self.0);
    }
}

/// A counter that is whole after a panic, too.
struct Counter(Cell<usize>);

/// A check that may panic: the engine calls it again only to shrink the input.
struct Unwinding<F>(F);

impl<F> RefUnwindSafe for Unwinding<F> {}

impl<F> Unwinding<F> {
    fn call<T>(&self, input: &T)
    where
        F: Fn(&T),
    {
        (self.0)(input);
    }
}
