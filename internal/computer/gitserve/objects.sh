# Lists what own.sh took: each object of commit $2 that $1 does not have, by id, kind and
# size, with its bytes. Whoever reads it looks whether that is all.
cd /computer/.git
git rev-list --objects "$2" --not "$1" | cut -c1-40 | git cat-file --batch --buffer
