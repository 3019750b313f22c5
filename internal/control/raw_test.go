package control_test

import (
	"bufio"
	"io"
	"net"
	"net/http"
)

func readResponse(conn net.Conn, req *http.Request) (answer, error) {
	res, err := http.ReadResponse(bufio.NewReader(conn), req)
	if err != nil {
		return answer{}, err
	}
	b, err := io.ReadAll(res.Body)
	if err != nil {
		return answer{}, err
	}
	return answer{res, string(b)}, res.Body.Close()
}
