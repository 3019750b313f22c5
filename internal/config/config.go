package config

import (
	"cmp"
	"fmt"
	"net/netip"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// Config is the whole configuration. The koanf tags are the keys in the file.
type Config struct {
	Server    Server    `koanf:"server"`
	Runtime   Runtime   `koanf:"runtime"`
	Storage   Storage   `koanf:"storage"`
	Git       Git       `koanf:"git"`
	Tee       Tee       `koanf:"tee"`
	Models    Models    `koanf:"models"`
	Budget    Budget    `koanf:"budget"`
	Egress    Egress    `koanf:"egress"`
	Search    Search    `koanf:"search"`
	Approvals Approvals `koanf:"approvals"`
	Tracing   Tracing   `koanf:"tracing"`
	Loops     Loops     `koanf:"loops"`
	// Agents are agent programs that a task may be given to, by names of the owner's.
	Agents map[string]Agent `koanf:"agents"`
}

// Agent is a program that speaks the Agent Client Protocol on its standard streams.
type Agent struct {
	Command []string `koanf:"command"` // what starts it in a box
	Env     []string `koanf:"env"`     // NAME=VALUE, beside what the box has; no keys
}

// Loops says how the loops of runs work.
type Loops struct {
	Repairs int  `koanf:"repairs"` // how often a task whose checks failed goes back to its loop; 0: never
	Review  bool `koanf:"review"`  // whether a person looks at what runs made before it is published
	// ReviewComputers are the computers, by their ids, in which they do, where Review does not say it of all.
	ReviewComputers []string `koanf:"review_computers"`
	DirectWords     int      `koanf:"direct_words"` // a prompt of one line and at most so many words goes to one Associate at once; 0: none does
	Runs            int      `koanf:"runs"`         // how many runs of one computer go on at the same time, while others wait
	Tasks           int      `koanf:"tasks"`        // how many tasks of one computer work at the same time
	ParkS           int      `koanf:"park_s"`       // how long a run waits for its person before it is held in the log alone
}

// Reviews reports whether a person looks at what runs of a computer made before it is published.
func (l Loops) Reviews(computer string) bool {
	return l.Review || slices.Contains(l.ReviewComputers, computer)
}

// Server says where the control plane listens and keeps its data.
type Server struct {
	Listen string `koanf:"listen"` // ADDR:PORT
	Host   string `koanf:"host"`   // parent of console.HOST and {handle}.desk.HOST
	Data   string `koanf:"data"`   // data directory
}

// Runtime says what boxes are made of and what they may use.
type Runtime struct {
	Mode      string `koanf:"mode"`       // driver; only local in this version
	MemoryMB  int    `koanf:"memory_mb"`  // per box
	Pids      int    `koanf:"pids"`       // per box
	CPU       int    `koanf:"cpu"`        // per box, percent of one core
	DiskMB    int    `koanf:"disk_mb"`    // what one box may write
	DiskFiles int    `koanf:"disk_files"` // how many files one box may make
	WakeTries int    `koanf:"wake_tries"` // how often a computer that does not wake is tried again by itself
	SleepS    int    `koanf:"sleep_s"`    // a computer that does nothing, and of which nothing was requested for so long, is put to sleep; 0: never
	SilenceS  int    `koanf:"silence_s"`  // a box that gives no sign of life for so long counts as hanging, and is replaced
	// Path are directories that boxes have in PATH before the machine's own, and ReadOnly
	// further directories that boxes see; both are shown read-only at the same path.
	Path     []string `koanf:"path"`
	ReadOnly []string `koanf:"read_only"`
}

// Storage says where blobs are kept.
type Storage struct {
	BlobsURL     string `koanf:"blobs_url"`      // empty: DATA/blobs
	BlobsQuotaMB int    `koanf:"blobs_quota_mb"` // per computer
	ReserveMB    int    `koanf:"reserve_mb"`     // preallocated for the log, freed when the disk is full
	LargeFileMB  int    `koanf:"large_file_mb"`  // largest file that is put or in a checkpoint
	LargeFilesMB int    `koanf:"large_files_mb"` // what chunks of large files may take, per computer
	AddMB        int    `koanf:"add_mb"`         // largest folder or repository that is brought in at once
	Files        int    `koanf:"files"`          // most files and empty folders in a checkpoint
	// DependenciesMB bounds the packages named by lock files that are kept for checks: once
	// for all computers together, and once again for each computer's own.
	DependenciesMB int `koanf:"dependencies_mb"`
}

// Git is the checkpoint policy.
type Git struct {
	RemoteTemplate      string `koanf:"remote_template"`       // where deploys push; {user} is replaced
	AutoCommitInterval  int    `koanf:"auto_commit_interval"`  // seconds since the first change without a checkpoint
	AutoCommitThreshold int    `koanf:"auto_commit_threshold"` // tasks
	KeptTrees           int    `koanf:"kept_trees"`            // trees of unpublished tasks that are kept, the newest
	KeptDays            int    `koanf:"kept_days"`             // for how long
}

// Tee names the services a trusted execution environment talks to.
type Tee struct {
	AttestationServer string `koanf:"attestation_server"`
	KeyServer         string `koanf:"key_server"`
}

// Models says which model is used and where its providers are. Keys never
// stand here: they come from the environment or from `choir secrets set`.
type Models struct {
	Default          string `koanf:"default"` // provider/model or an alias
	AnthropicBaseURL string `koanf:"anthropic_base_url"`
	OpenAIBaseURL    string `koanf:"openai_base_url"`
	Catalogue        string `koanf:"catalogue"` // TOML file that adds to the built-in catalogue
	Plans            string `koanf:"plans"`     // directory of further rehearsal plans
	// Fallback are the models (provider/model or an alias) that answer, the first that can, in the place of one that
	// has failed for a while.
	Fallback []string `koanf:"fallback"`
	// PatienceS is for how many seconds a call waits for a model that can't be had.
	PatienceS int   `koanf:"patience_s"`
	Roles     Roles `koanf:"roles"` // the models of roles, in place of Default
	// Efforts are how much the models of roles think before they answer: none, low, medium or high; empty: as the model does by itself.
	Efforts Roles `koanf:"efforts"`
	// Computers are the models of computers, by their ids, in place of Default and Roles.
	Computers map[string]ComputerModels `koanf:"computers"`
	// Providers are further providers, by names of the owner's, and what departs in those that are known.
	Providers map[string]Provider `koanf:"providers"`
}

// efforts are how much a model can be asked to think.
var efforts = []string{"none", "low", "medium", "high"}

// Roles says something of each role, such as its model: provider/model or an alias; empty: nothing of its own.
type Roles struct {
	Director  string `koanf:"director"`
	Associate string `koanf:"associate"`
}

// ComputerModels names the models of one computer.
type ComputerModels struct {
	Default   string `koanf:"default"`
	Director  string `koanf:"director"`
	Associate string `koanf:"associate"`
}

// Provider is a model service.
type Provider struct {
	BaseURL string `koanf:"base_url"`
	Key     string `koanf:"key"`    // the name of its key in the environment and the vault; never the key
	Wire    string `koanf:"wire"`   // the format it speaks
	Region  string `koanf:"region"` // of AWS, for bedrock
}

// Budget bounds what models may cost: per run, day, computer and owner. The smallest that
// applies counts, a prompt's own among them; 0 means no limit where it is allowed.
type Budget struct {
	WallS     int     `koanf:"wall_s"`
	Turns     int     `koanf:"turns"`
	ToolCalls int     `koanf:"tool_calls"`
	Tokens    int     `koanf:"tokens"`
	CostUSD   float64 `koanf:"cost_usd"`

	DayTokens       int     `koanf:"day_tokens"` // of all computers, per UTC day
	DayCostUSD      float64 `koanf:"day_cost_usd"`
	ComputerTokens  int     `koanf:"computer_tokens"` // of one computer, in all
	ComputerCostUSD float64 `koanf:"computer_cost_usd"`
	OwnerTokens     int     `koanf:"owner_tokens"` // of all computers, in all
	OwnerCostUSD    float64 `koanf:"owner_cost_usd"`

	// The most that clients may store in the log: per session and minute, per computer and
	// minute, per computer and UTC day.
	SessionEvents  int `koanf:"session_events"`
	SessionMB      int `koanf:"session_mb"`
	ComputerEvents int `koanf:"computer_events"`
	ComputerMB     int `koanf:"computer_mb"`
	DayEvents      int `koanf:"day_events"`
	DayMB          int `koanf:"day_mb"`
}

// Egress adds to the default network policy.
type Egress struct {
	Allow        []string `koanf:"allow"`         // host:port or *.suffix:port, for every profile but none
	AllowPrivate []string `koanf:"allow_private"` // ADDR:PORT that may be private, such as a mirror of one's own
	CAFile       string   `koanf:"ca_file"`       // PEM certificates that boxes trust beside the machine's
}

// Search names the service by which tasks search the web. Its key never stands here: it comes from the
// environment or from `choir secrets set`.
type Search struct {
	Provider string `koanf:"provider"` // empty: no task searches
	BaseURL  string `koanf:"base_url"` // empty: the vendor's own
	Key      string `koanf:"key"`      // the name of its key; empty: the usual one
}

// Tracing names the collector to which the traces of runs are exported. Its headers never stand here: they
// come from the environment or from `choir secrets set`.
type Tracing struct {
	Endpoint string `koanf:"endpoint"` // empty: nothing is exported
	Headers  string `koanf:"headers"`  // the name of the headers; empty: the usual one
}

// Approvals says how a person is asked.
type Approvals struct {
	WaitS int `koanf:"wait_s"` // how long an answer is waited for; then it is denied
}

// minWaitS and maxWaitS bound Approvals.WaitS: a person needs time to get to the console,
// and a task that waits keeps its boxes.
const minWaitS, maxWaitS = 10, 24 * 60 * 60

// maxWakeTries bounds Runtime.WakeTries.
const maxWakeTries = 100

// maxSleepS bounds Runtime.SleepS: longer than that may as well be never.
const maxSleepS = 30 * 24 * 60 * 60

// maxFiles bounds Storage.Files: the keeper holds all their names in memory.
const maxFiles = 2_000_000

// minSilenceS and maxSilenceS bound Runtime.SilenceS: a busy box needs seconds, and a box
// that hangs is waited for no longer than its task.
const minSilenceS, maxSilenceS = 2, 600

// maxRepairs bounds Loops.Repairs: a loop that has failed so often does not get there.
const maxRepairs = 20

// maxDirectWords bounds Loops.DirectWords: what is longer is worth a plan, or a wish of its own.
const maxDirectWords = 1000

// maxAtOnce bounds Loops.Runs and Loops.Tasks: each has boxes of its own, some megabytes even while they wait.
const maxAtOnce = 200

// maxParkS bounds Loops.ParkS. Who wants no run to be parked says a day.
const maxParkS = 24 * 60 * 60

// maxPatienceS bounds Models.PatienceS, in seconds.
const maxPatienceS = 24 * 3600

// Default returns the built-in configuration.
func Default() Config {
	return Config{
		Server:    Server{Listen: "127.0.0.1:7700", Host: "choir.localhost"},
		Runtime:   Runtime{Mode: "local", MemoryMB: memoryOfBox(), Pids: 1024, CPU: 200, DiskMB: 4096, DiskFiles: 400_000, WakeTries: 6, SleepS: 1800, SilenceS: 20},
		Storage:   Storage{BlobsQuotaMB: 10_240, ReserveMB: 64, LargeFileMB: 16_384, LargeFilesMB: 65_536, AddMB: 4096, Files: 200_000, DependenciesMB: 4096},
		Git:       Git{AutoCommitInterval: 300, AutoCommitThreshold: 50, KeptTrees: 20, KeptDays: 30},
		Approvals: Approvals{WaitS: 300},
		Models:    Models{PatienceS: 1800},
		Loops:     Loops{Repairs: 3, DirectWords: 30, Runs: 4, Tasks: 3, ParkS: 120},
		Budget: Budget{WallS: 3600, Turns: 200, ToolCalls: 1000, Tokens: 10_000_000, CostUSD: 5, DayCostUSD: 50,
			SessionEvents: 3000, SessionMB: 8, ComputerEvents: 6000, ComputerMB: 16, DayEvents: 200_000, DayMB: 512},
	}
}

// SleepAfter is SleepS as a duration.
func (r Runtime) SleepAfter() time.Duration { return time.Duration(r.SleepS) * time.Second }

// AutoCommitEvery is AutoCommitInterval as a duration.
func (g Git) AutoCommitEvery() time.Duration {
	return time.Duration(g.AutoCommitInterval) * time.Second
}

// KeptFor is KeptDays as a duration.
func (g Git) KeptFor() time.Duration { return time.Duration(g.KeptDays) * 24 * time.Hour }

// PrivateAddrs is AllowPrivate, parsed.
func (e Egress) PrivateAddrs() ([]netip.AddrPort, error) {
	out := make([]netip.AddrPort, 0, len(e.AllowPrivate))
	for _, s := range e.AllowPrivate {
		a, err := netip.ParseAddrPort(s)
		if err != nil {
			return nil, &KeyError{"egress.allow_private", err.Error()}
		}
		out = append(out, a)
	}
	return out, nil
}

// unshowable returns why a directory can't be shown to boxes, or "".
func (c Config) unshowable(dir string) string {
	holds := func(outer, inner string) bool {
		return outer == "/" || inner == outer || strings.HasPrefix(inner, strings.TrimSuffix(outer, "/")+"/")
	}
	switch {
	case !filepath.IsAbs(dir) || filepath.Clean(dir) != dir || strings.ContainsAny(dir, ":\n"):
		return "must be a clean absolute path"
	case c.Server.Data != "" && (holds(dir, c.Server.Data) || holds(c.Server.Data, dir)):
		return "holds choir's own data, or lies in it"
	}
	for _, own := range []string{"/etc", "/proc", "/sys", "/dev", "/run", "/tmp", "/computer", "/base", "/home/choir"} {
		if holds(dir, own) || holds(own, dir) {
			return "is a place that boxes have of their own, or holds one"
		}
	}
	return ""
}

// KeyError says which key's value is wrong, and why.
type KeyError struct{ Key, Reason string }

func (e *KeyError) Error() string { return e.Key + ": " + e.Reason }

// validate checks every value that would otherwise fail later in another part.
func (c Config) validate() error {
	return cmp.Or(c.validateServer(), c.validateRuntime(), c.validateCounts(), c.validateBounds(), c.validateAmounts(), c.validateAddresses(), c.validateAgents())
}

func bad(key, format string, args ...any) error { return &KeyError{key, fmt.Sprintf(format, args...)} }

func (c Config) validateServer() error {
	addr, err := netip.ParseAddrPort(c.Server.Listen)
	switch {
	case err != nil:
		return bad("server.listen", "is %q; write it as ADDR:PORT, such as 127.0.0.1:7700", c.Server.Listen)
	case !addr.Addr().IsLoopback():
		return bad("server.listen", "is %q; this version serves loopback addresses only, put a TLS proxy in front to serve others", c.Server.Listen)
	case c.Server.Host == "" || strings.ContainsAny(c.Server.Host, "/: "):
		return bad("server.host", "is %q; it must be a host name", c.Server.Host)
	}
	return nil
}

func (c Config) validateRuntime() error {
	switch c.Runtime.Mode {
	case "local":
	case "container", "microvm", "tee":
		return bad("runtime.mode", "is %q, which this version does not have yet; use local", c.Runtime.Mode)
	default:
		return bad("runtime.mode", "is %q; allowed: local", c.Runtime.Mode)
	}
	for key, dirs := range map[string][]string{"runtime.path": c.Runtime.Path, "runtime.read_only": c.Runtime.ReadOnly} {
		for _, d := range dirs {
			if why := c.unshowable(d); why != "" {
				return bad(key, "has %q, which %s", d, why)
			}
		}
	}
	if c.Storage.BlobsURL != "" {
		return bad("storage.blobs_url", "is %q; this version keeps blobs in the data directory, leave it empty", c.Storage.BlobsURL)
	}
	return nil
}

// validateCounts refuses counts that are not positive.
func (c Config) validateCounts() error {
	for key, v := range map[string]int{
		"runtime.memory_mb": c.Runtime.MemoryMB, "runtime.pids": c.Runtime.Pids, "runtime.cpu": c.Runtime.CPU,
		"runtime.disk_mb": c.Runtime.DiskMB, "runtime.disk_files": c.Runtime.DiskFiles,
		"storage.large_file_mb": c.Storage.LargeFileMB, "storage.large_files_mb": c.Storage.LargeFilesMB, "storage.add_mb": c.Storage.AddMB, "storage.files": c.Storage.Files,
		"storage.dependencies_mb": c.Storage.DependenciesMB, "storage.blobs_quota_mb": c.Storage.BlobsQuotaMB, "git.auto_commit_interval": c.Git.AutoCommitInterval,
		"git.auto_commit_threshold": c.Git.AutoCommitThreshold, "git.kept_trees": c.Git.KeptTrees, "git.kept_days": c.Git.KeptDays, "budget.wall_s": c.Budget.WallS,
		"budget.session_events": c.Budget.SessionEvents, "budget.session_mb": c.Budget.SessionMB, "budget.computer_events": c.Budget.ComputerEvents,
		"budget.computer_mb": c.Budget.ComputerMB, "budget.day_events": c.Budget.DayEvents, "budget.day_mb": c.Budget.DayMB,
		"budget.turns": c.Budget.Turns, "budget.tool_calls": c.Budget.ToolCalls, "budget.tokens": c.Budget.Tokens,
	} {
		if v <= 0 {
			return bad(key, "is %d; it must be more than 0", v)
		}
	}
	return nil
}

func (c Config) validateBounds() error {
	if w := c.Approvals.WaitS; w < minWaitS || w > maxWaitS {
		return bad("approvals.wait_s", "is %d; it must be from %d to %d", w, minWaitS, maxWaitS)
	}
	if w := c.Runtime.WakeTries; w < 0 || w > maxWakeTries {
		return bad("runtime.wake_tries", "is %d; it must be from 0 (not by itself) to %d", w, maxWakeTries)
	}
	if w := c.Runtime.SleepS; w < 0 || w > maxSleepS {
		return bad("runtime.sleep_s", "is %d; it must be from 0 (never) to %d", w, maxSleepS)
	}
	if n := c.Storage.Files; n > maxFiles {
		return bad("storage.files", "is %d; it must be at most %d, for the keeper holds all of them in its memory", n, maxFiles)
	}
	if s := c.Models.PatienceS; s < 1 || s > maxPatienceS {
		return bad("models.patience_s", "is %d; it must be from 1 to %d", s, maxPatienceS)
	}
	for key, effort := range map[string]string{"models.efforts.director": c.Models.Efforts.Director, "models.efforts.associate": c.Models.Efforts.Associate} {
		if effort != "" && !slices.Contains(efforts, effort) {
			return bad(key, "is %q; it must be one of %s", effort, strings.Join(efforts, ", "))
		}
	}
	if s := c.Runtime.SilenceS; s < minSilenceS || s > maxSilenceS {
		return bad("runtime.silence_s", "is %d; it must be from %d to %d", s, minSilenceS, maxSilenceS)
	}
	if n := c.Loops.Repairs; n < 0 || n > maxRepairs {
		return bad("loops.repairs", "is %d; it must be from 0 (never) to %d", n, maxRepairs)
	}
	if n := c.Loops.DirectWords; n < 0 || n > maxDirectWords {
		return bad("loops.direct_words", "is %d; it must be from 0 (every prompt is planned) to %d", n, maxDirectWords)
	}
	if n := c.Loops.Runs; n < 1 || n > maxAtOnce {
		return bad("loops.runs", "is %d; it must be from 1 to %d", n, maxAtOnce)
	}
	if n := c.Loops.Tasks; n < 1 || n > maxAtOnce {
		return bad("loops.tasks", "is %d; it must be from 1 to %d", n, maxAtOnce)
	}
	if s := c.Loops.ParkS; s < 1 || s > maxParkS {
		return bad("loops.park_s", "is %d; it must be from 1 to %d (a day)", s, maxParkS)
	}
	if c.Storage.ReserveMB < 0 {
		return bad("storage.reserve_mb", "is %d; it must not be negative", c.Storage.ReserveMB)
	}
	return nil
}

// validateAmounts refuses amounts of money and tokens that can't be compared.
func (c Config) validateAmounts() error {
	for key, v := range map[string]float64{
		"budget.cost_usd": c.Budget.CostUSD, "budget.day_cost_usd": c.Budget.DayCostUSD, "budget.computer_cost_usd": c.Budget.ComputerCostUSD,
		"budget.owner_cost_usd": c.Budget.OwnerCostUSD, "budget.day_tokens": float64(c.Budget.DayTokens),
		"budget.computer_tokens": float64(c.Budget.ComputerTokens), "budget.owner_tokens": float64(c.Budget.OwnerTokens),
	} {
		if !(v >= 0 && v <= 1e12) { // refuses NaN too
			return bad(key, "is %v; it must be from 0 (no limit) to 1e12", v)
		}
	}
	return nil
}

// maxAgents bounds Agents: each is told of to the Director's model.
const maxAgents = 20

func (c Config) validateAgents() error {
	if n := len(c.Agents); n > maxAgents {
		return bad("agents", "has %d entries; it may have %d", n, maxAgents)
	}
	for name, a := range c.Agents {
		key := "agents." + name
		if len(name) > 32 || strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789-") != "" {
			return bad(key, "has a name that can't be used; write it in up to 32 small letters, digits and -")
		}
		if len(a.Command) == 0 || a.Command[0] == "" {
			return bad(key+".command", "names no program")
		}
		for _, v := range a.Env {
			if name, _, ok := strings.Cut(v, "="); !ok || name == "" {
				return bad(key+".env", "has %q; write each as NAME=VALUE", v)
			}
		}
	}
	return nil
}

// Environ is Env as a map; of a name that is there twice the last counts.
func (a Agent) Environ() map[string]string {
	env := map[string]string{}
	for _, v := range a.Env {
		name, value, _ := strings.Cut(v, "=")
		env[name] = value
	}
	return env
}

func (c Config) validateAddresses() error {
	addresses := map[string]string{
		"models.anthropic_base_url": c.Models.AnthropicBaseURL, "models.openai_base_url": c.Models.OpenAIBaseURL,
		"search.base_url": c.Search.BaseURL, "tracing.endpoint": c.Tracing.Endpoint, "tee.attestation_server": c.Tee.AttestationServer, "tee.key_server": c.Tee.KeyServer,
	}
	for name, p := range c.Models.Providers {
		addresses["models.providers."+name+".base_url"] = p.BaseURL
	}
	for key, v := range addresses {
		if v == "" {
			continue
		}
		if u, err := url.Parse(v); err != nil || !slices.Contains([]string{"http", "https"}, u.Scheme) || u.Host == "" || u.User != nil {
			return bad(key, "is %q; it must be an http or https URL without user name", v)
		}
	}
	if strings.ContainsAny(c.Tracing.Headers, "=, ") { // it may be a secret, which is not repeated
		return bad("tracing.headers", "is not the name of a variable or secret; the headers themselves are set with choir secrets set")
	}
	if f := c.Egress.CAFile; f != "" && !filepath.IsAbs(f) {
		return bad("egress.ca_file", "is %q; it must be an absolute path", f)
	}
	for i, v := range c.Egress.AllowPrivate {
		if _, err := netip.ParseAddrPort(v); err != nil {
			return bad(fmt.Sprintf("egress.allow_private[%d]", i), "is %q; write it as ADDR:PORT", v)
		}
	}
	return nil
}
