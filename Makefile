# What a person types here. `make` alone lists it.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

# Debian packages that building and testing need beside Rust.
PACKAGES := build-essential ca-certificates caddy chromium chromium-driver chromium-headless-shell curl dpkg-dev ethtool fonts-inter git haproxy iproute2 keepalived libfaketime libnginx-mod-stream librsvg2-bin logrotate mount nghttp2-client nginx-light nmap openssl perl-base prometheus prometheus-alertmanager python3-scapy python3-yaml rabbitmq-server redis-server shellcheck slowhttptest systemd util-linux wrk zbar-tools
# Places for tests. Most tests take one or two (.config/nextest.toml). They wait more than they compute: for a key that ends, a file that
# is read again, a node that restarts.
TEST_THREADS ?= $(shell echo $$((13 * $$(nproc))))
# How long `make fuzz` works on each target, in seconds.
TIME ?= 600
# How many cases `make soak` tries for each property; the usual number is 256.
CASES ?= 100000

# What `make repeat` repeats, and how often.
TESTS ?= fleet::slots::paused_master_delays_no_other_slot
TIMES ?= 200

.PHONY: help
help: ## List what can be made
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: build
build: rust ## Build the server and its load generator for use
	cargo build --release --locked -p carom -p carom-loadgen

# Folders of tests/e2e/ whose tests ask a node over HTTP. They run over both datapaths. Names are found anywhere in a path, hence what
# is skipped: nodes of a fleet need Redis on loopback, and a browser complains of a network that changes while it loads.
#
# Also skipped is what would be the same twice: tests whose nodes listen at the kernel in any case, among them those of public pages in a
# browser and of pictures, and one of the memory of searches, which the datapath has no part in.
HTTP_TESTS := access:: compat:: edge:: links:: lists:: pages::form:: redirects:: visits:: \
	$(addprefix --skip ,fleet:: console:: http2::browser_is_served balancers:: floods:: fronts:: inherited_sockets_lose_no_connection \
	kernel_buffers_are_bounded misses_throttle_one_address_only allow_list::apollo_ allow_list::failed_notifications_ \
	allow_list::http_list_ allow_list::redis_list_ old_texts_take_no_memory)

# With these features, a test can cause faults and run a node as the next version. Neither happens unless a test switches it on, so
# all tests share one build; a second one takes ten minutes. `make soak`, `make package-test` and `make api-test` build the product.
SWITCHES := --features carom/faults,carom/next-format

.PHONY: test
test: packages page-tools rust ## Install what tests need (as root), then run every test
	@if cargo nextest --version >/dev/null 2>&1; then \
		tests/in-memory.sh cargo nextest run --workspace $(SWITCHES) --locked --tests --no-fail-fast --no-tests=pass --test-threads $(TEST_THREADS); \
		cargo test --workspace $(SWITCHES) --locked --doc; \
	else \
		tests/in-memory.sh cargo test --workspace $(SWITCHES) --locked --no-fail-fast; \
	fi
	@echo 'over kernel bypass, between network namespaces: everything that speaks HTTP'
	@if cargo nextest --version >/dev/null 2>&1; then \
		E2E_DATAPATH=bypass tests/in-memory.sh cargo nextest run --workspace $(SWITCHES) --locked --no-fail-fast --test e2e --test-threads $(TEST_THREADS) -- $(HTTP_TESTS); \
	else \
		E2E_DATAPATH=bypass tests/in-memory.sh cargo test --workspace $(SWITCHES) --locked --no-fail-fast --test e2e -- $(HTTP_TESTS); \
	fi

.PHONY: test-build
test-build: rust ## Build what `make test` runs
	cargo test --workspace $(SWITCHES) --locked --no-run

# Requests that schemathesis generates for each operation and phase.
EXAMPLES ?= 30

.PHONY: api-test
api-test: rust api-tools ## Check the API against its description with schemathesis, in a virtual environment of its own
	$(if $(BINARY),,cargo build --locked --package carom)
	tests/schemathesis/run.sh $(or $(BINARY),"$${CARGO_TARGET_DIR:-target}/debug/carom") $(EXAMPLES)

# The virtual environment of schemathesis.
.PHONY: api-tools
api-tools:
	@if ! python3 -c 'import ensurepip' 2>/dev/null && [ "$$(id -u)" -eq 0 ] && command -v apt-get >/dev/null; then \
		apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends python3-venv; \
	fi
	@tests/schemathesis/environment.sh >/dev/null

.PHONY: screens
screens: packages page-tools rust ## Retake the pictures of all pages in docs/screens/
	CAROM_SCREENS="$(CURDIR)/docs/screens" cargo test --package carom --locked --test e2e -- --test-threads 1 --exact \
		pages::screens::every_page_is_pictured pages::screens::states::every_state_is_pictured \
		pages::screens::fleet::fleet_is_pictured
	@if ! command -v pngquant >/dev/null && [ "$$(id -u)" -eq 0 ] && command -v apt-get >/dev/null; then \
		apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends pngquant; \
	fi
	@if command -v pngquant >/dev/null; then pngquant --force --skip-if-larger --ext .png --speed 1 --quality 70-95 docs/screens/*.png; \
	else echo 'pngquant is missing: the pictures are four times as large'; fi

.PHONY: lighthouse
lighthouse: packages page-tools rust ## Rate the pages of a demonstration with Lighthouse: 95 of 100 or more
	cargo build --release --locked -p carom
	@[ -d tests/npm/lighthouse/node_modules/lighthouse ] || \
		npm install --prefix tests/npm/lighthouse --no-package-lock --no-fund --no-audit --silent
	node tests/npm/lighthouse/rate.mjs "$${CARGO_TARGET_DIR:-target}/release/carom"

.PHONY: docs
docs: rust ## Generate reference pages, terminal sessions and benchmark tables of docs/
	CAROM_WRITE_DOCS=1 cargo test --package carom --locked --test docs -- --exact reference_pages_are_current benchmark_tables_are_current
	CAROM_WRITE_DOCS=1 cargo test --package carom --locked --test e2e -- --exact operate::terminal::sessions_are_current
	CAROM_WRITE_DOCS=1 cargo test --package carom-loadgen --locked --test load -- --exact sessions::sessions_are_current

.PHONY: xdp-object
xdp-object: ## Build the checked-in object of the XDP program; needs clang 14
	crates/xdp/bpf/build.sh $(CURDIR)/crates/xdp/bpf/bypass.o

.PHONY: book
book: ## Build docs/ as a website in target/book; needs mdBook
	@command -v mdbook >/dev/null || { echo 'missing: mdbook; install it with `cargo install mdbook --locked`' >&2; exit 1; }
	mdbook build docs

.PHONY: lint
lint: format-check clippy ## Check formatting and lints; warnings are errors

.PHONY: format-check
format-check: rust
	cargo fmt --all --check

.PHONY: clippy
clippy: rust
	cargo clippy --workspace $(SWITCHES) --all-targets --locked -- -D warnings
	@echo 'the product, which has no switches for tests'
	cargo check --workspace --locked

.PHONY: deny
deny: rust ## Check licences, second versions and sources of dependencies, with cargo-deny where it is installed
	@if cargo deny --version >/dev/null 2>&1; then \
		cargo deny --locked --workspace check licenses bans sources; \
	else \
		cargo test --locked --workspace $(SWITCHES) --test dependencies; \
	fi

# Not in .ci/run: the database of advisories is a Git repository on github.com, which not every machine reaches.
.PHONY: advisories
advisories: rust ## Look for security advisories on dependencies; needs cargo-deny and its database from github.com
	@cargo deny --version >/dev/null 2>&1 || { echo 'missing: cargo-deny; install it with `cargo install cargo-deny --locked`' >&2; exit 1; }
	cargo deny --locked --workspace check advisories

# The fuzzer needs a compiler flag that is not stable yet; RUSTC_BOOTSTRAP lets the stable compiler take it.
.PHONY: fuzz
fuzz: rust ## Fuzz every target for TIME seconds each; installs cargo-fuzz where it is missing
	@cargo fuzz --version >/dev/null 2>&1 || cargo install cargo-fuzz --locked
	@for target in $$(cd fuzz && RUSTC_BOOTSTRAP=1 cargo fuzz list); do \
		echo "fuzz $$target for $(TIME) seconds"; \
		mkdir -p fuzz/corpus/$$target; \
		RUSTC_BOOTSTRAP=1 cargo fuzz run --sanitizer none "$$target" fuzz/corpus/$$target fuzz/seeds/$$target \
			-- -max_total_time=$(TIME); \
	done

.PHONY: soak
soak: packages page-tools rust ## Run the tests optimised, with CASES cases for each property, and schemathesis for longer
	$(MAKE) api-test EXAMPLES=1000
	PROPTEST_CASES=$(CASES) CAROM_OUTAGE_SECONDS=60 CAROM_FLEET_ROUNDS=30 CAROM_FLEET_FAULTS=60 CAROM_SIM_SCHEDULES=3000000 CAROM_CHANGES=1000 CAROM_FLIPS=250 CAROM_REDIRECTS=1000000 CAROM_GUESSES=1000000 CAROM_NET_CONNECTIONS=5000000 \
		cargo test --release --workspace --locked --no-fail-fast
	$(MAKE) repeat

.PHONY: repeat
repeat: packages rust ## Repeat the end-to-end tests with TESTS in their names TIMES times while every CPU is busy
	tests/in-memory.sh tests/repeat.sh '$(TESTS)' $(TIMES) --workspace $(SWITCHES) --locked

# The node has CPU 0 and the clients have CPU 1, so nothing else should run meanwhile.
.PHONY: floods
floods: packages rust ## Measure redirects beside floods of every other request: the p99 stays under 10 ms
	CAROM_FLOOD_SECONDS=20 cargo test --release --package carom --locked --test e2e -- --nocapture --exact \
		edge::floods::redirects_wait_one_turn_at_most

# The servers that carom is compared with. Those that are missing are left out of the results.
PEERS := nginx-light haproxy libnginx-mod-http-lua lua-nginx-redis redis-server redis-tools wrk

.PHONY: deb
deb: build ## Make a Debian package of carom and carom-loadgen in target/debian
	deploy/debian/package.sh --loadgen "$${CARGO_TARGET_DIR:-target}/release/carom-loadgen"

.PHONY: release
release: rust ## Build tarball, Debian package, container image, bill of materials and checksums in dist/
	deploy/release/release.sh

# A clone has the last commit, without changes in the working tree. Its path differs in length, which shows paths that are left.
.PHONY: release-check
release-check: release ## Build the release again from a clone in another directory, and compare the files
	@clone=$$(mktemp -d); trap 'rm -rf "$$clone"' EXIT; \
	git clone --quiet --shared . "$$clone/another-directory"; \
	env -u CARGO_TARGET_DIR "$$clone/another-directory/deploy/release/release.sh"; \
	diff dist/SHA256SUMS "$$clone/another-directory/dist/SHA256SUMS"; \
	echo 'both builds gave the same files'

# What trying the package needs: a clean Debian, something that runs containers, and who looks for faults of packages.
PACKAGE_TOOLS := ca-certificates crun debootstrap dpkg-dev lintian python3 util-linux

.PHONY: package-test
package-test: $(if $(BINARY),,build) package-tools ## Install, upgrade, remove the package in a clean Debian (as root), and run it as a container
	deploy/debian/test.sh $(if $(BINARY),--binary $(BINARY))

# The clean Debian, and what runs in it.
.PHONY: package-tools
package-tools:
	@if [ "$$(id -u)" -eq 0 ] && command -v apt-get >/dev/null; then \
		apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $(PACKAGE_TOOLS); \
	fi
	deploy/debian/test.sh --only-root

.PHONY: bench
bench: packages rust ## Install carom's peers (as root), compare, also over kernel bypass, and measure growth: bench/RESULTS.md
	@if [ "$$(id -u)" -eq 0 ] && command -v apt-get >/dev/null; then \
		apt-get update -qq && apt-get install -y -qq --no-install-recommends $(PEERS); \
	fi
	cargo run --release --locked -p carom-bench -- compare
	cargo run --release --locked -p carom-bench -- growth
	cargo run --release --locked -p carom-bench -- bypass
	cargo run --release --locked -p carom-bench -- fleet
	cargo run --release --locked -p carom-bench -- join

.PHONY: bench-micro
bench-micro: packages rust ## Time the small functions (criterion) and count their instructions (valgrind)
	@if ! command -v valgrind >/dev/null && [ "$$(id -u)" -eq 0 ] && command -v apt-get >/dev/null; then \
		apt-get update -qq && apt-get install -y -qq --no-install-recommends valgrind; \
	fi
	cargo bench --locked -p carom-bench
	cargo run --release --locked -p carom-bench -- instructions

# What a test needs of the system. On a system without dpkg only the commands can be looked for.
.PHONY: packages
packages:
	@if command -v dpkg-query >/dev/null; then \
		missing=(); \
		for package in $(PACKAGES); do \
			dpkg-query -W -f '$${Status}' "$$package" 2>/dev/null | grep -q 'install ok installed' \
				|| missing+=("$$package"); \
		done; \
		if [ $${#missing[@]} -eq 0 ]; then exit 0; fi; \
		echo "missing Debian packages: $${missing[*]}"; \
		if [ "$$(id -u)" -eq 0 ]; then \
			apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq "$${missing[@]}"; \
		else \
			echo "install them: sudo apt-get install $${missing[*]}" >&2; exit 1; \
		fi; \
	else \
		for command in caddy cc chromium chromedriver curl dpkg-deb dpkg-shlibdeps epmd ethtool git h2load haproxy ip keepalived logrotate mount nghttp nginx nmap openssl perl prlimit promtool python3 rabbitmq-server redis-server rsvg-convert setpriv shellcheck slowhttptest systemd-analyze unshare wrk zbarimg; do \
			command -v "$$command" >/dev/null || { echo "missing: $$command" >&2; exit 1; }; \
		done; \
	fi

# npm packages of tests: axe-core and html-validate check pages, Shlink's JavaScript SDK calls the API, and its web component runs in a
# browser. Building and running carom needs none of them. The web component names versions that its own kit does not accept.
.PHONY: page-tools
page-tools: packages
	@if [ ! -d tests/npm/node_modules/html-validate ] || [ ! -d tests/npm/node_modules/@shlinkio/shlink-js-sdk ] || \
	    [ ! -d tests/npm/web-client/node_modules/esbuild ]; then \
		if ! command -v npm >/dev/null && [ "$$(id -u)" -eq 0 ] && command -v apt-get >/dev/null; then \
			DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends nodejs npm; \
		fi; \
		command -v npm >/dev/null || { echo 'missing: npm, which installs packages of tests' >&2; exit 1; }; \
		npm install --prefix tests/npm --no-package-lock --no-fund --no-audit --silent; \
		npm install --prefix tests/npm/web-client --legacy-peer-deps --no-package-lock --no-fund --no-audit --silent; \
	fi

.PHONY: rust
rust:
	@command -v cargo >/dev/null || { echo 'missing: Rust; see https://rustup.rs' >&2; exit 1; }
