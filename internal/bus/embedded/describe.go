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

// The server stores a stream's description in one file and its checksum in another, and
// ignores a stream whose two files do not match. It replaces one file after the other, so a
// power cut or a full disk in between leaves the new description with the old checksum.
const (
	metaFile = "meta.inf"
	metaSum  = "meta.sum"
)

// SumOf returns the checksum of a description of the stream with that name.
func SumOf(stream string, description []byte) (string, error) {
	key := sha256.Sum256([]byte(stream))
	hh, err := highwayhash.NewDigest64(key[:])
	if err != nil {
		return "", err
	}
	_, _ = hh.Write(description) // writing to a hash never fails
	return hex.EncodeToString(hh.Sum(nil)), nil
}

// ChangedOver reports whether a description is new while its checksum is that of the
// previous one, which differed only in that the stream republished its log on live.{cid},
// as all streams once did. Only the interrupted change from one to the other has this
// result.
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

// finishChanges writes the checksum of those streams in a store that were being changed so
// when the machine stopped. Other mismatches are left as they are.
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
			continue // if anything is wrong with it, the server reports it
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
