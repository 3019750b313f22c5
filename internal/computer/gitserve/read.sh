# Serves a repository that lies at /repository, which is read-only here, to who
# reads it: $1 is upload-pack or receive-pack, $2 "advertise" or empty, and $3 how many
# bytes of the input are the ids of what is wanted, before the request itself. Of the
# repository only objects, refs and HEAD are shown to git: its configuration is
# whoever could write there, and so are its alternates.
git=/tmp/git
mkdir -p "$git/objects/info"
for part in "$at"/objects/pack "$at"/objects/[0-9a-f][0-9a-f]; do
	[ ! -d "$part" ] || ln -s "$part" "$git/objects/"
done
ln -s "$at/refs" "$git/refs"
for part in packed-refs shallow; do
	[ ! -f "$at/$part" ] || ln -s "$at/$part" "$git/$part"
done
head -c 4096 "$at/HEAD" >"$git/HEAD"
{
	printf '[core]\n\trepositoryformatversion = %s\n\tbare = true\n\thooksPath = /dev/null\n\tfsmonitor = false\n' "$version"
	[ "$version" = 0 ] || printf '[extensions]\n\tobjectFormat = sha256\n'
	printf '[transfer]\n\thideRefs = refs/choir\n[uploadpack]\n\tallowFilter = true\n[uploadpackfilter "sparse:oid"]\n\tallow = false\n[gc]\n\tauto = 0\n[advice]\n\tgraftFileDeprecated = false\n'
} >"$git/config"
if [ "$3" -gt 0 ]; then
	head -c "$3" >/tmp/wanted
	{
		git --git-dir="$git" for-each-ref --format='%(refname) %(objectname)' | grep -v '^refs/choir/' | cut -d ' ' -f 2
		git --git-dir="$git" rev-parse -q --verify HEAD || :
	} | sort -u | comm -13 - /tmp/wanted >/tmp/beyond
	if [ -s /tmp/beyond ]; then # what a shallow or partial clone lacks, or nobody's business
		git --git-dir="$git" rev-list --objects --no-object-names --missing=allow-any --exclude='refs/choir/*' --all |
			grep -F -x -m "$(wc -l </tmp/beyond)" -f /tmp/beyond | sort -u | comm -13 - /tmp/beyond >/tmp/unreached
		if [ -s /tmp/unreached ]; then
			refusal="ERR upload-pack: not our ref $(head -n 1 /tmp/unreached)"
			printf '%04x%s' $((${#refusal} + 4)) "$refusal"
			exit
		fi
	fi
fi
how=--strict
[ -z "$2" ] || how=--http-backend-info-refs
exec 3<&0 # a shell gives what it starts in the background another input
setsid git "$1" --stateless-rpc "$how" "$git" <&3 3<&- &
answers=$!
# A pipe may come to be there after the look for one.
(
	exec </dev/null >/dev/null 2>&1
	while sleep 5; do
		if odd; then
			: >/tmp/odd
			kill -s KILL -- "-$answers"
		fi
	done
) &
watch=$!
code=0
wait "$answers" || code=$?
kill "$watch" || :
[ ! -e /tmp/odd ] || exit 71
exit "$code"
