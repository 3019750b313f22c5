// Command modelserver plays a script on a loopback port: see package modelserver. It prints its
// root URL on the first line and then one line of JSON for each request (role, turn, format,
// whether it had a key). A line "release NAME" on standard input releases the answers that are held
// under NAME.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"

	"choir.dev/choiros/test/modelserver"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "modelserver:", err)
		os.Exit(1)
	}
}

func run() error {
	script := flag.String("script", "", "script to play (JSON)")
	listen := flag.String("listen", "127.0.0.1:0", "loopback address to listen on")
	values := map[string]string{}
	flag.Func("value", "name=value for {{name}}; may be repeated", func(s string) error {
		k, v, ok := strings.Cut(s, "=")
		if !ok {
			return errors.New("write it as name=value")
		}
		values[k] = v
		return nil
	})
	flag.Parse()
	b, err := os.ReadFile(*script)
	if err != nil {
		return err
	}
	s, err := modelserver.ParseScript(b)
	if err != nil {
		return err
	}
	server := modelserver.New(s)
	for k, v := range values {
		server.Set(k, v)
	}
	l, err := net.Listen("tcp", *listen)
	if err != nil {
		return err
	}
	if !l.Addr().(*net.TCPAddr).IP.IsLoopback() {
		return errors.New("it listens on loopback only")
	}
	fmt.Printf("http://%s\n", l.Addr())
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	web := &http.Server{Handler: printed(server), ReadHeaderTimeout: 10 * time.Second}
	go func() { // until the input or the process ends
		for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
			if name, ok := strings.CutPrefix(lines.Text(), "release "); ok {
				server.Release(name)
			}
		}
	}()
	go func() {
		<-ctx.Done()
		server.Close()
		_ = web.Close() // the process ends in any case
	}()
	if err := web.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

func printed(s *modelserver.Server) http.Handler {
	var mu sync.Mutex
	shown := 0
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.ServeHTTP(w, r)
		mu.Lock()
		defer mu.Unlock()
		all := s.Requests()
		for ; shown < len(all); shown++ {
			q := all[shown]
			_ = json.NewEncoder(os.Stdout).Encode(map[string]any{"wire": q.Wire, "role": q.Role, "turn": q.Turn, "stream": q.Stream, "key": q.Key != ""})
		}
	})
}
