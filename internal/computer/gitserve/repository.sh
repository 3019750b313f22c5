# Finds the repository at $at, for the scripts that begin with this, and looks for what git
# should not open in the parts that $plain names. One whose data lies
# elsewhere (a gitfile, a link, a common directory, alternates) is refused, and so is one
# that is stored as we don't read it: that is all that is asked of its configuration.
set -eu
work=false
if [ -d "$at/.git" ] && [ ! -L "$at/.git" ]; then
	at=$at/.git work=true
elif [ -e "$at/.git" ] || [ -L "$at/.git" ]; then
	exit 65
fi
[ ! -e "$at/commondir" ] || exit 65
for part in objects refs; do
	[ ! -L "$at/$part" ] || exit 65
	[ -d "$at/$part" ] || exit 66
done
[ -f "$at/HEAD" ] || exit 66
[ ! -e "$at/objects/info/alternates" ] || exit 67
# Git would wait for a pipe, or read a device that a link leads to, until its box is ended.
odd() {
	for part in $plain; do
		[ -e "$at/$part" ] || [ -L "$at/$part" ] || continue
		found=$(find "$at/$part" ! -type f ! -type d -print -quit) || [ $? -ne 127 ] || exit 127
		[ -z "$found" ] || return 0
	done
	return 1
}
if odd; then
	exit 71
fi
format=sha1 version=0
if [ -f "$at/config" ]; then
	format=$(git config --file "$at/config" --get extensions.objectformat || echo sha1)
	refs=$(git config --file "$at/config" --get extensions.refstorage || echo files)
	[ "$refs" = files ] || exit 68
fi
case $format in
sha1) ;;
sha256) version=1 ;;
*) exit 68 ;;
esac
