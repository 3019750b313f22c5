package gateway_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/gateway"
	"choir.dev/choiros/test/modelserver"
)

// awsSources leaves of AWS's sources only those that are given: variables, and the content of the two shared files.
func awsSources(t *testing.T, env map[string]string, conf, credentials string) {
	t.Helper()
	for _, kv := range os.Environ() {
		if name, _, _ := strings.Cut(kv, "="); strings.HasPrefix(name, "AWS_") {
			t.Setenv(name, "")
			os.Unsetenv(name)
		}
	}
	dir := t.TempDir()
	for name, content := range map[string]string{"AWS_CONFIG_FILE": conf, "AWS_SHARED_CREDENTIALS_FILE": credentials} {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		t.Setenv(name, path)
	}
	t.Setenv("AWS_EC2_METADATA_DISABLED", "true")
	for name, value := range env {
		t.Setenv(name, value)
	}
}

var awsEnv = map[string]string{"AWS_ACCESS_KEY_ID": modelserver.AWSAccessKey, "AWS_SECRET_ACCESS_KEY": modelserver.AWSSecretKey, "AWS_REGION": modelserver.AWSRegion}

const (
	awsProfile     = "[profile work]\nregion = " + modelserver.AWSRegion + "\n"
	awsCredentials = "[work]\naws_access_key_id = " + modelserver.AWSAccessKey + "\naws_secret_access_key = " + modelserver.AWSSecretKey + "\n"
)

// sts is a service that gives a role's credentials to whoever asks.
func sts(t *testing.T) string {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/xml")
		fmt.Fprintf(w, `<AssumeRoleResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><AssumeRoleResult><Credentials><AccessKeyId>%s</AccessKeyId><SecretAccessKey>%s</SecretAccessKey><SessionToken>token-of-the-role</SessionToken><Expiration>%s</Expiration></Credentials></AssumeRoleResult></AssumeRoleResponse>`,
			modelserver.AWSAccessKey, modelserver.AWSSecretKey, time.Now().Add(time.Hour).UTC().Format(time.RFC3339))
	}))
	t.Cleanup(s.Close)
	return s.URL
}

const claudeOnBedrock = "bedrock/global.anthropic.claude-haiku-4-5-20251001-v1:0" // whose name has to be escaped in a path

// TestBedrockIsSignedWithAWSsSources: the server computes each signature itself. The credentials and the region may be in
// the environment, in the shared files, and behind a role.
func TestBedrockIsSignedWithAWSsSources(t *testing.T) {
	for _, c := range []struct {
		name              string
		env               map[string]string
		conf, credentials string
		region            string // configured
		token             string // of a session, that is sent
	}{
		{name: "environment", env: awsEnv},
		{name: "a profile", env: map[string]string{"AWS_PROFILE": "work"}, conf: awsProfile, credentials: awsCredentials},
		{name: "a configured region", env: map[string]string{"AWS_PROFILE": "work", "AWS_REGION": "us-east-1"}, conf: awsProfile, credentials: awsCredentials, region: modelserver.AWSRegion},
		{
			name: "a role", env: map[string]string{"AWS_PROFILE": "role", "AWS_ENDPOINT_URL_STS": sts(t)}, credentials: "[base]\naws_access_key_id = AKIDBASE\naws_secret_access_key = base\n", token: "token-of-the-role",
			conf: "[profile role]\nrole_arn = arn:aws:iam::123456789012:role/models\nsource_profile = base\nregion = " + modelserver.AWSRegion + "\n",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			awsSources(t, c.env, c.conf, c.credentials)
			s := modelserver.New(modelserver.Script{Turns: []modelserver.Turn{{
				Reasoning: []modelserver.Thought{{Text: "First I look.", Opaque: "sig"}}, Text: "looking — ünïcode",
				Calls: []modelserver.Call{{ID: "c_1", Name: "read", Args: modelserver.Args(map[string]string{"path": "a"})}}, Usage: &modelserver.Usage{In: 100, Out: 10, CacheRead: 1000}}}}).Start()
			defer s.Close()
			m := &meter{}
			g := build(t, gateway.Options{Providers: map[string]gateway.Service{"bedrock": {BaseURL: s.URL(), Region: c.region}}, Meter: m.record})
			sc := scope()
			sc.Model = claudeOnBedrock
			turn, err := g.Turn(t.Context(), sc, say("go"), nil)
			if err != nil {
				t.Fatal(err)
			}
			p := turn.Message.Parts
			if len(p) != 3 || p[0].Reasoning == nil || p[0].Reasoning.Provider != "bedrock" || p[1].Text != "looking — ünïcode" || p[2].Call == nil || string(p[2].Call.Args) != `{"path":"a"}` || turn.Stop != contract.StopToolUse {
				t.Errorf("%+v", turn)
			}
			want := 100*1.0/1e6 + 1000*0.1/1e6 + 10*5.0/1e6
			if u := m.taken()[0].Usage; u.TokensIn != 1100 || u.CostUSD < want*0.999 || u.CostUSD > want*1.001 {
				t.Errorf("usage %+v, want cost %v", u, want)
			}
			r := s.Requests()[0]
			body := string(r.Body)
			if got := r.Header.Get("X-Amz-Security-Token"); got != c.token {
				t.Errorf("token %q", got)
			}
			if !strings.Contains(body, `"anthropic_version":"bedrock-`) || strings.Contains(body, `"model"`) || strings.Contains(body, `"stream"`) || !strings.HasSuffix(r.Path, "claude-haiku-4-5-20251001-v1:0/invoke-with-response-stream") {
				t.Errorf("%s: sent %s", r.Path, body)
			}
			for _, v := range append([]string{body}, strings.Join(r.Header.Values("Authorization"), " ")) {
				if strings.Contains(v, modelserver.AWSSecretKey) {
					t.Errorf("the secret key itself was sent: %s", v)
				}
			}
		})
	}
}

// TestBedrockThatRefuses: AWS's errors have the codes that others' have, before the stream and in it.
func TestBedrockThatRefuses(t *testing.T) {
	awsSources(t, awsEnv, "", "")
	for _, c := range []struct {
		name string
		turn modelserver.Turn
		code string
	}{
		{"throttled", modelserver.Turn{Text: "Too many requests", Fault: &modelserver.Fault{Kind: "status", Status: 429}, Repeat: true}, "rate_limited"},
		{"not allowed", modelserver.Turn{Text: "You don't have access to the model", Fault: &modelserver.Fault{Kind: "status", Status: 403}}, "invalid"},
		{"the model failed", modelserver.Turn{Text: "The model failed", Fault: &modelserver.Fault{Kind: "status", Status: 424}, Repeat: true}, "unavailable"},
		{"no such model", modelserver.Turn{Text: "Could not find it", Fault: &modelserver.Fault{Kind: "status", Status: 404}}, "no_model"},
		{"over the window", modelserver.Turn{Text: "Input is too long for requested model.", Fault: &modelserver.Fault{Kind: "status", Status: 400}}, "overflow"},
		{"throttled in the stream", modelserver.Turn{Text: "Too many tokens", Stop: "failed", Code: "throttlingException", Repeat: true}, "rate_limited"},
		{"a timeout in the stream", modelserver.Turn{Text: "Took too long", Stop: "failed", Code: "modelTimeoutException", Repeat: true}, "timeout"},
		{"a fault in the stream", modelserver.Turn{Text: "Oops", Stop: "failed", Code: "internalServerException", Repeat: true}, "unavailable"},
		{"invalid in the stream", modelserver.Turn{Text: "Bad", Stop: "failed", Code: "validationException"}, "invalid"},
	} {
		s := modelserver.New(modelserver.Script{Turns: []modelserver.Turn{c.turn}}).Start()
		g := build(t, gateway.Options{Providers: map[string]gateway.Service{"bedrock": {BaseURL: s.URL()}}, Limits: gateway.Limits{Backoff: 1, MaxRetryGap: 1e9}})
		sc := scope()
		sc.Model = claudeOnBedrock
		if _, err := g.Turn(t.Context(), sc, say("go"), nil); code(err) != c.code {
			t.Errorf("%s: %v, want %s", c.name, err, c.code)
		}
		s.Close()
	}
}

// TestBedrockWithoutCredentials: what is missing is said in words, and once it is there, it counts at the next call.
func TestBedrockWithoutCredentials(t *testing.T) {
	s := modelserver.New(modelserver.Script{Turns: []modelserver.Turn{{Text: "hello", Repeat: true}}}).Start()
	defer s.Close()
	ask := func(g *gateway.Gateway) error {
		sc := scope()
		sc.Model = claudeOnBedrock
		_, err := g.Turn(t.Context(), sc, say("go"), nil)
		return err
	}
	awsSources(t, nil, "", "")
	if err := ask(build(t, gateway.Options{})); code(err) != "no_model" || !strings.Contains(err.Error(), "AWS_REGION") {
		t.Errorf("no region: %v", err)
	}
	g := build(t, gateway.Options{Providers: map[string]gateway.Service{"bedrock": {BaseURL: s.URL(), Region: modelserver.AWSRegion}}})
	if err := ask(g); code(err) != "invalid" || !strings.Contains(err.Error(), "credentials could not be had") {
		t.Errorf("no credentials: %v", err)
	}
	t.Setenv("AWS_ACCESS_KEY_ID", modelserver.AWSAccessKey)
	t.Setenv("AWS_SECRET_ACCESS_KEY", "wrong")
	if err := ask(g); code(err) != "invalid" || !strings.Contains(err.Error(), "signature") {
		t.Errorf("wrong credentials: %v", err)
	}
	t.Setenv("AWS_SECRET_ACCESS_KEY", modelserver.AWSSecretKey)
	if err := ask(g); err != nil {
		t.Errorf("credentials that were corrected: %v", err)
	}
}

// TestBedrockIsNotChosenForItsCredentials: a machine may have AWS's credentials for anything. The configuration or Bedrock's
// own token says that models are called with them.
func TestBedrockIsNotChosenForItsCredentials(t *testing.T) {
	awsSources(t, awsEnv, "", "")
	for _, c := range []struct {
		name string
		opt  gateway.Options
		want string
	}{
		{"credentials", gateway.Options{}, "rehearsal/plans"},
		{"a section", gateway.Options{Providers: map[string]gateway.Service{"bedrock": {}}}, "bedrock/global.anthropic.claude-sonnet-4-6"},
		{"a token", gateway.Options{Keys: keys(map[string]string{gateway.KeyBedrock: "token-1234"})}, "bedrock/global.anthropic.claude-sonnet-4-6"},
		{"another's key goes before", gateway.Options{Keys: keys(map[string]string{gateway.KeyBedrock: "token-1234", gateway.KeyKimi: "key-1234"})}, "kimi/kimi-k2.6"},
	} {
		if got := defaultModel(t, build(t, c.opt)); got != c.want {
			t.Errorf("%s: got %q, want %q", c.name, got, c.want)
		}
	}
	for _, bad := range []gateway.Service{{Region: "eu-central-1/../x"}, {Region: "Frankfurt"}, {Wire: gateway.WireChat}} {
		if _, err := gateway.New(gateway.Options{Logger: quiet(), Providers: map[string]gateway.Service{"bedrock": bad}}); !fault.Is(err, fault.Invalid) {
			t.Errorf("%+v: %v", bad, err)
		}
	}
}

// TestBedrocksAddress: a region's own, from wherever the region is known, and no other host is asked.
func TestBedrocksAddress(t *testing.T) {
	awsSources(t, awsEnv, "", "")
	s := modelserver.New(modelserver.Script{}).Start()
	defer s.Close()
	for region, want := range map[string]string{"": "bedrock-runtime." + modelserver.AWSRegion + ".amazonaws.com", "us-west-2": "bedrock-runtime.us-west-2.amazonaws.com"} {
		var asked []string
		there := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadRequest) }))
		to, err := url.Parse(there.URL)
		if err != nil {
			t.Fatal(err)
		}
		g := build(t, gateway.Options{Providers: map[string]gateway.Service{"bedrock": {Region: region}}, HTTPClient: &http.Client{Transport: roundTrip(func(r *http.Request) (*http.Response, error) {
			asked = append(asked, r.URL.Scheme+"://"+r.URL.Host)
			r = r.Clone(r.Context())
			r.URL.Scheme, r.URL.Host = to.Scheme, to.Host
			return http.DefaultTransport.RoundTrip(r)
		})}})
		sc := scope()
		sc.Model = claudeOnBedrock
		_, err = g.Turn(t.Context(), sc, say("go"), nil)
		if len(asked) != 1 || asked[0] != "https://"+want {
			t.Errorf("asked %v, want %s: %v", asked, want, err)
		}
		there.Close()
	}
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
