package choirtest

import (
	"flag"
	"fmt"
	"os"
	"runtime"
	"strconv"
)

// Lanes makes n parallel tests of a package run at once, unless another number than that of the
// processors was asked for: tests of whole computers spend most of their time waiting for boxes,
// timeouts and disks. It is to be called in a TestMain, before the tests run.
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
