# Takes a push into the repository at $1 of an overlay that nobody else sees. For
# that long the repository has a configuration of ours, so that nothing in its own
# is run or obeyed; it gets its own back before anybody looks at the overlay.
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
