# Serves a repository that lies at /repository, which is read-only here, to who
# reads it: $1 is upload-pack or receive-pack, $2 "advertise" or empty. Of the
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
	printf '[transfer]\n\thideRefs = refs/choir\n[uploadpack]\n\tallowFilter = true\n[gc]\n\tauto = 0\n[advice]\n\tgraftFileDeprecated = false\n'
} >"$git/config"
if [ -n "$2" ]; then
	exec git "$1" --stateless-rpc --http-backend-info-refs "$git"
fi
exec git "$1" --stateless-rpc --strict "$git"
