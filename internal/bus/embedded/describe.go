package embedded

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/minio/highwayhash"
	"github.com/nats-io/nats-server/v2/server"

	"choir.dev/choiros/internal/durable"
)

// The server keeps a stream's description in one file and its checksum in another,
// and passes over a stream whose two do not fit. It replaces one after the other, so
// that a power cut, or a full disk, between them leaves the new description with the
// sum of the old.
const (
	metaFile = "meta.inf"
	metaSum  = "meta.sum"
)

// SumOf is the checksum of a description of the stream in a directory of that name.
func SumOf(stream string, description []byte) (string, error) {
	key := sha256.Sum256([]byte(stream))
	hh, err := highwayhash.NewDigest64(key[:])
	if err != nil {
		return "", err
	}
	_, _ = hh.Write(description) // a hash takes everything
	return hex.EncodeToString(hh.Sum(nil)), nil
}

// ChangedOver says whether a description is new and its checksum that of the one
// before: the same, but that the stream still republished its log on live.{cid}, as
// all did once. Nothing but the change from the one to the other leaves that.
func ChangedOver(stream string, description []byte, sum string) bool {
	var info server.FileStreamInfo
	if err := json.Unmarshal(description, &info); err != nil || info.Name != stream || info.RePublish != nil || len(info.Subjects) != 1 {
		return false
	}
	if again, err := json.Marshal(info); err != nil || string(again) != string(description) {
		return false
	}
	subjects := info.Subjects[0]
	info.RePublish = &server.RePublish{Source: subjects, Destination: "live." + strings.TrimPrefix(subjects, "log.")}
	before, err := json.Marshal(info)
	if err != nil {
		return false
	}
	want, err := SumOf(stream, before)
	return err == nil && want == sum
}

// finishChanges gives those streams of a store their checksum that were being
// changed over when the machine stopped. What does not fit for any other reason is
// left as it is.
func finishChanges(dir string) error {
	streams, err := fs.Glob(os.DirFS(dir), filepath.Join("*", "streams", "*", metaFile))
	if err != nil {
		return err
	}
	for _, name := range streams {
		at := filepath.Join(dir, filepath.Dir(name))
		description, err := os.ReadFile(filepath.Join(at, metaFile))
		sum, serr := os.ReadFile(filepath.Join(at, metaSum))
		if err != nil || serr != nil || !ChangedOver(filepath.Base(at), description, string(sum)) {
			continue // the server says what is wrong with it, if anything is
		}
		right, err := SumOf(filepath.Base(at), description)
		if err != nil {
			return err
		}
		if err := replaceSum(at, right); err != nil {
			return err
		}
	}
	return nil
}

func replaceSum(stream, sum string) error {
	f, err := os.CreateTemp(stream, ".sum-*")
	if err != nil {
		return err
	}
	_, err = f.WriteString(sum)
	if err = errors.Join(err, f.Sync(), f.Close()); err == nil {
		err = os.Rename(f.Name(), filepath.Join(stream, metaSum))
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return durable.SyncDir(stream)
}
