#!/bin/sh
# Prints the path of a Chromium, after trying to install one on Debian and its kin.
# Without one the browser tests are left out, loudly; with CI=true that is a failure.
set -eu

find_chromium() {
  for name in chromium chromium-browser google-chrome google-chrome-stable; do
    if command -v "$name"; then return 0; fi
  done
  return 1
}

if [ -n "${CHROMIUM:-}" ]; then
  echo "$CHROMIUM"
  exit 0
fi
if find_chromium; then exit 0; fi

if command -v apt-get >/dev/null; then
  sudo=
  [ "$(id -u)" = 0 ] || sudo='sudo -n'
  echo 'no Chromium, which the browser tests need: installing it' >&2
  {
    $sudo apt-get update -qq &&
      $sudo env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends chromium
  } >&2 || true
  if find_chromium; then exit 0; fi
fi

echo 'no Chromium: install the package chromium, or set CHROMIUM to its path' >&2
if [ "${CI:-}" = true ]; then
  echo 'in CI nothing is skipped' >&2
  exit 1
fi
exit 3
