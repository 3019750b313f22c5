# Takes a push into the repository at $1 of an overlay that nobody else sees. For
# that long the repository has a configuration of ours, so that nothing in its own
# is run or obeyed; it gets its own back before anybody looks at the overlay.
set -eu
at=/computer/$1
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
own=$at/config.before-push
[ ! -e "$own" ] && [ ! -L "$own" ] || exit 69
if [ -e "$at/config" ] || [ -L "$at/config" ]; then
	mv -T "$at/config" "$own"
fi
bare=true
[ "$work" = false ] || bare=false
{
	printf '[core]\n\trepositoryformatversion = %s\n\tbare = %s\n\thooksPath = /dev/null\n\tfsmonitor = false\n\tuntrackedCache = false\n' "$version" "$bare"
	[ "$version" = 0 ] || printf '[extensions]\n\tobjectFormat = sha256\n'
	printf '[transfer]\n\tfsckObjects = true\n\thideRefs = refs/choir\n[gc]\n\tauto = 0\n[advice]\n\tgraftFileDeprecated = false\n[receive]\n\tautogc = false\n\tdenyCurrentBranch = updateInstead\n\tmaxInputSize = %s\n' "$2"
} >"$at/config"
code=0
git receive-pack --stateless-rpc "$at" || code=$?
rm -f "$at/config"
if [ -e "$own" ] || [ -L "$own" ]; then
	mv -T "$own" "$at/config"
fi
exit "$code"
