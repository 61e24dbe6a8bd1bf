#!/usr/bin/env bash
# Make a Debian package of a finished build: tools/make_deb.sh BUILD OUT
#
# Takes what `meson install` installs, whatever the build's prefix (the program finds its parts beside itself), the
# service and settings of deploy/, and writes OUT/plimsoll_VERSION_ARCH.deb. Needs dpkg-dev; `make deb` builds first.
set -euo pipefail
cd "$(dirname "$0")/.."
build=$(cd "${1:?usage: tools/make_deb.sh BUILD OUT}" && pwd)
out=$(mkdir -p "${2:?usage: tools/make_deb.sh BUILD OUT}" && cd "$2" && pwd)
version=$(sed -n "s/^  version: '\(.*\)',$/\1/p" meson.build)-1
maintainer="The Plimsoll developers <${DEBEMAIL:-root@$(hostname -f 2>/dev/null || hostname)}>"
arch=$(dpkg --print-architecture)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
root=$work/root
# The same input gives the same package.
export SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || date +%s)}

DESTDIR=$work/staged meson install -C "$build" --no-rebuild --quiet
bin=$(find "$work/staged" -type f -name plimsoll -path '*/bin/*')
mkdir -p "$root"
mv "$(dirname "$(dirname "$bin")")" "$root/usr"

find "$root" -type d -exec chmod 755 {} +
find "$root" -type f -exec chmod 644 {} +
chmod 755 "$root/usr/bin/plimsoll"
find "$root/usr/lib" -name '__pycache__' -type d -prune -exec rm -rf {} +
strip --strip-unneeded --remove-section=.comment --remove-section=.note "$root/usr/bin/plimsoll"
find "$root/usr/lib" -name '*.so*' -type f \
    -exec strip --strip-unneeded --remove-section=.comment --remove-section=.note {} +
mkdir -p "$root/usr/share/zsh/vendor-completions"
mv "$root/usr/share/zsh/site-functions/"* "$root/usr/share/zsh/vendor-completions/"
rmdir "$root/usr/share/zsh/site-functions"
find "$root/usr/share/man" -type f -exec gzip -9n {} +

install -D -m 644 deploy/systemd/plimsoll.service "$root/lib/systemd/system/plimsoll.service"
install -D -m 644 deploy/plimsoll.conf "$root/etc/plimsoll/plimsoll.conf"
for folder in grafana prometheus netdata victoriametrics kubernetes; do
    mkdir -p "$root/usr/share/plimsoll/$folder"
    find "deploy/$folder" -type f \( -name '*.json' -o -name '*.yml' -o -name '*.yaml' -o -name '*.conf' \) \
        ! -name 'rules_test.yml' -exec install -m 644 -t "$root/usr/share/plimsoll/$folder" {} +
done
doc=$root/usr/share/doc/plimsoll
install -D -m 644 deploy/debian/copyright "$doc/copyright"
install -D -m 644 deploy/debian/overrides "$root/usr/share/lintian/overrides/plimsoll"
gzip -9nc CHANGELOG.md >"$doc/changelog.gz"
printf 'plimsoll (%s) unstable; urgency=medium\n\n  * Built from the source tree: see changelog.gz.\n\n -- %s  %s\n' \
    "$version" "$maintainer" "$(date -uR -d "@$SOURCE_DATE_EPOCH")" | gzip -9nc >"$doc/changelog.Debian.gz"
chmod 644 "$doc/"*.gz

mkdir -p "$root/DEBIAN" "$work/debian"
printf 'Source: plimsoll\n\nPackage: plimsoll\nArchitecture: any\n' >"$work/debian/control"
# The libraries of the simulated GPU stand for others of their names: nobody depends on them.
depends=$(cd "$work" && dpkg-shlibdeps -O "$root/usr/bin/plimsoll" 2>/dev/null | sed 's/^shlibs:Depends=//')
sed -e "s/@MAINTAINER@/$maintainer/" -e "s/@VERSION@/$version/" -e "s/@ARCH@/$arch/" \
    -e "s|@DEPENDS@|$depends|" -e "s/@SIZE@/$(du -sk --apparent-size "$root" | cut -f1)/" deploy/debian/control >"$root/DEBIAN/control"
echo /etc/plimsoll/plimsoll.conf >"$root/DEBIAN/conffiles"
for script in postinst prerm postrm; do
    install -m 755 "deploy/debian/$script" "$root/DEBIAN/$script"
done
(cd "$root" && find usr lib -type f -print0 | sort -z | xargs -0 md5sum) >"$root/DEBIAN/md5sums"
find "$root" -newermt "@$SOURCE_DATE_EPOCH" -exec touch -h -d "@$SOURCE_DATE_EPOCH" {} +
dpkg-deb --root-owner-group -Zxz --build "$root" "$out/plimsoll_${version}_$arch.deb" >/dev/null
echo "$out/plimsoll_${version}_$arch.deb"
