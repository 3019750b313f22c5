# Serves a repository that lies at /repository, which is read-only here, to who
# reads it: $1 is upload-pack or receive-pack, $2 "advertise" or empty. Of the
# repository only objects, refs and HEAD are shown to git: its configuration is
# whoever could write there, and so are its alternates.
set -eu
at=/repository
if [ -d "$at/.git" ] && [ ! -L "$at/.git" ]; then
	at=$at/.git
elif [ -e "$at/.git" ] || [ -L "$at/.git" ] || [ -e "$at/commondir" ]; then
	exit 65
fi
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
