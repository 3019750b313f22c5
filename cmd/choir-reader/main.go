// Choir-reader reads one page of the web. The host starts it in a box that has nothing of the computer's in it
// and whose only way out leads to the page's host: the request is on its standard input, the page on its
// standard output, both in JSON. It is a program of its own because what parses pages takes longer to
// initialise than a box takes to start.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"

	"choir.dev/choiros/internal/webpage"
	"choir.dev/choiros/internal/webpage/reader"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "choir-reader:", err)
		os.Exit(1)
	}
}

func run() error {
	var r webpage.Request
	if err := json.NewDecoder(io.LimitReader(os.Stdin, 16<<10)).Decode(&r); err != nil {
		return fmt.Errorf("read the request: %w", err)
	}
	proxy, err := url.Parse(os.Getenv("HTTPS_PROXY"))
	if err != nil || proxy.Host == "" {
		return errors.New("HTTPS_PROXY names no proxy; choir-reader is started by choir, in a box")
	}
	return json.NewEncoder(os.Stdout).Encode(reader.Read(context.Background(), r, proxy))
}
