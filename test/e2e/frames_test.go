package e2e_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"choir.dev/choiros/internal/view"
	"choir.dev/choiros/test/choirtest"
)

// TestFramesAskNoServiceForItsModels: where the default is PROVIDER/*, fifty frames and the desktop's sessions have its
// service asked for its models once.
func TestFramesAskNoServiceForItsModels(t *testing.T) {
	var asked atomic.Int64
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/models") {
			asked.Add(1)
			fmt.Fprint(w, `{"data":[{"id":"large"},{"id":"small"}]}`)
			return
		}
		http.NotFound(w, r)
	}))
	t.Cleanup(s.Close)
	in := choirtest.Start(t, choirtest.Options{Env: []string{"OPENAI_BASE_URL=" + s.URL + "/v1", "OPENAI_API_KEY=" + newKey(), "CHOIR_MODEL=openai/*"}})
	at := "/api/computers/" + string(in.Standing(t).ID) + "/frame"
	frame := func() (f view.Frame) {
		decode(t, in.Get(t, at), &f)
		return f
	}
	choirtest.Eventually(t, 20*time.Second, "the first model of the service is the one that is used", func() bool { return frame().Provider.Model == "large" })
	for range 50 {
		if p := frame().Provider; p.Name != "openai" || p.Model != "large" || len(p.Choices.Models) > 0 {
			t.Fatalf("%+v", p)
		}
	}
	if n := asked.Load(); n != 1 {
		t.Errorf("it was asked %d times", n)
	}
}
