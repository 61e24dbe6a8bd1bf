#!/usr/bin/env bash
# Install into an empty folder and look whether what a user needs is there and works: tools/check_install.sh BUILD
set -euo pipefail
build=$(cd "${1:?usage: tools/check_install.sh BUILD}" && pwd)
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT

DESTDIR=$root meson install -C "$build" --no-rebuild --quiet
bin=$(find "$root" -type f -name plimsoll -path '*/bin/*')
"$bin" --version

missing=0
want() { # a path pattern that must exist below the root
    if [[ -z $(find "$root" -path "*/$1" -type f) ]]; then
        echo "not installed: $1"
        missing=1
    fi
}
want 'bash-completion/completions/plimsoll'
want 'zsh/site-functions/_plimsoll'
want 'fish/vendor_completions.d/plimsoll.fish'
want 'man1/plimsoll.1'
for verb in $("$bin" help --format json | sed -n 's/^      "name": "\([a-z]*\)",$/\1/p'); do
    want "man1/plimsoll-$verb.1"
done
exit $missing
