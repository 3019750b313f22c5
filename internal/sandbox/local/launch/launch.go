// Package launch is the stage between the driver and bubblewrap for boxes with
// overlays, which bubblewrap can't mount in the versions that distributions
// carry. It runs in a user and mount namespace of its own, mounts them there,
// and becomes bubblewrap.
package launch

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// Overlay is one mount of a plan. Lower has the topmost layer first.
type Overlay struct {
	Lower  []string `json:"lower"`
	Upper  string   `json:"upper"`
	Work   string   `json:"work"`
	Target string   `json:"target"`
}

// Args returns the arguments for a guest binary that mounts overlays and then
// becomes argv.
func Args(overlays []Overlay, argv []string) ([]string, error) {
	for _, o := range overlays {
		if _, err := o.data(); err != nil {
			return nil, err
		}
	}
	plan, err := json.Marshal(overlays)
	if err != nil {
		return nil, err
	}
	return append([]string{"launch", string(plan)}, argv...), nil
}

// data is the mount's option string. The kernel takes one page of it.
func (o Overlay) data() (string, error) {
	if len(o.Lower) == 0 || o.Upper == "" || o.Work == "" {
		return "", errors.New("an overlay needs lower, upper and work directories")
	}
	escape := strings.NewReplacer(`\`, `\\`, `,`, `\,`, `:`, `\:`).Replace
	lower := make([]string, len(o.Lower))
	for i, l := range o.Lower {
		lower[i] = escape(l)
	}
	s := "userxattr,lowerdir=" + strings.Join(lower, ":") + ",upperdir=" + escape(o.Upper) + ",workdir=" + escape(o.Work)
	if len(s) >= os.Getpagesize() {
		return "", errors.New("the paths of an overlay's layers are too long together")
	}
	return s, nil
}

// Main mounts the plan in args[0] and becomes args[1:]. It returns only when it
// fails, with 125.
func Main(args []string) int {
	if err := run(args); err != nil {
		fmt.Fprintln(os.Stderr, "choir launch:", err)
	}
	return 125
}

func run(args []string) error {
	if len(args) < 2 {
		return errors.New("nothing to start")
	}
	var plan []Overlay
	if err := json.Unmarshal([]byte(args[0]), &plan); err != nil {
		return fmt.Errorf("read the plan: %w", err)
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("leave the host's mounts: %w (this is for a namespace of its own)", err)
	}
	for _, o := range plan {
		data, err := o.data()
		if err != nil {
			return err
		}
		if err := unix.Mount("overlay", o.Target, "overlay", unix.MS_NOSUID|unix.MS_NODEV, data); err != nil {
			return fmt.Errorf("mount an overlay on %s: %w", o.Target, err)
		}
	}
	return fmt.Errorf("start %s: %w", args[1], syscall.Exec(args[1], args[1:], []string{}))
}
