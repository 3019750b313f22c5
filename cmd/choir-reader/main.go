// Choir-reader reads one page of the web, or sends one request that changes something. The host starts it in a box that has nothing of the computer's in it
// and whose only way out leads to the host that is asked: the request is on its standard input, the page on its
// standard output, or, a line at a time, what is known of the request that was sent, all in JSON. It is a program of its own because what parses pages takes longer to
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
	if err := json.NewDecoder(io.LimitReader(os.Stdin, webpage.MaxRequest)).Decode(&r); err != nil {
		return fmt.Errorf("read the request: %w", err)
	}
	proxy, err := url.Parse(os.Getenv("HTTPS_PROXY"))
	if err != nil || proxy.Host == "" {
		return errors.New("HTTPS_PROXY names no proxy; choir-reader is started by choir, in a box")
	}
	out := json.NewEncoder(os.Stdout)
	if r.Send != nil {
		return reader.Send(context.Background(), *r.Send, proxy, func(a webpage.Answer) error { return out.Encode(a) })
	}
	return out.Encode(reader.Read(context.Background(), r, proxy))
}
