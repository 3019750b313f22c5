package choirtest

import (
	"flag"
	"fmt"
	"os"
	"runtime"
	"strconv"
)

// Lanes has n parallel tests of a package run at once, where nobody asked for
// another number than there are processors: whole computers wait for boxes,
// silences and disks most of the time. It is for a TestMain, before it runs them.
func Lanes(n int) {
	flag.Parse()
	f := flag.Lookup("test.parallel")
	if f == nil || f.Value.String() != strconv.Itoa(runtime.GOMAXPROCS(0)) {
		return
	}
	if err := f.Value.Set(strconv.Itoa(n)); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
}
