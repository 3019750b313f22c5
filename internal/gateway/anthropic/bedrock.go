package anthropic

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/anthropics/anthropic-sdk-go/bedrock"
	"github.com/anthropics/anthropic-sdk-go/option"
	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"

	"choir.dev/choiros/internal/gateway/provider"
	"choir.dev/choiros/internal/lazy"
)

// Bedrock implements provider.Provider in the Messages format as Amazon Bedrock speaks it: the model in the path, requests
// signed, and the stream in frames of AWS. The zero value is usable; it remembers where its credentials are from.
type Bedrock struct {
	mu     sync.Mutex
	loaded map[string]aws.Config // by region as configured
}

var region = lazy.Regexp(`^[a-z]{2}(-[a-z0-9]+)+$`)

// Region reports whether a text has the form of a region's name.
func Region(name string) bool { return len(name) <= 32 && region().MatchString(name) }

// errNoRegion says what is missing. Bedrock has no address without a region.
var errNoRegion = errors.New("no region is known: set models.providers.bedrock.region, AWS_REGION or a profile's")

// Base returns the address of the service in a region, which is looked for where AWS's programs look if it is "".
func (b *Bedrock) Base(ctx context.Context, name string) (base, where string, err error) {
	if name == "" {
		cfg, err := b.config(ctx, "")
		if err != nil {
			return "", "", err
		}
		name = cfg.Region
	}
	if name == "" {
		return "", "", errNoRegion
	}
	if !Region(name) {
		return "", "", fmt.Errorf("%q is no region", name)
	}
	return "https://bedrock-runtime." + name + ".amazonaws.com/", name, nil
}

// config reads AWS's usual sources, once for each region until what they gave is refused.
func (b *Bedrock) config(ctx context.Context, region string) (aws.Config, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if cfg, ok := b.loaded[region]; ok {
		return cfg, nil
	}
	// What is loaded outlives the call; its own timeouts bound it.
	cfg, err := config.LoadDefaultConfig(context.WithoutCancel(ctx), config.WithRegion(region))
	if err != nil {
		return cfg, fmt.Errorf("AWS's configuration: %w", err)
	}
	if b.loaded == nil {
		b.loaded = map[string]aws.Config{}
	}
	b.loaded[region] = cfg
	return cfg, nil
}

// forget has the sources read anew, because what they gave was refused: whoever signs in again need not restart anything.
func (b *Bedrock) forget() {
	b.mu.Lock()
	defer b.mu.Unlock()
	clear(b.loaded)
}

// Stream implements provider.Provider. Endpoint.Key is a bearer token; without one the request is signed.
func (b *Bedrock) Stream(ctx context.Context, c provider.Call, sink provider.Sink) (provider.Finish, error) {
	cfg := aws.Config{Region: c.Endpoint.Region}
	if c.Endpoint.Key != "" {
		cfg.BearerAuthTokenProvider = bedrock.NewStaticBearerTokenProvider(c.Endpoint.Key)
		cfg.AuthSchemePreference = []string{"httpBearerAuth"}
	} else {
		var err error
		if cfg, err = b.config(ctx, c.Endpoint.Region); err != nil {
			return provider.Finish{}, &provider.Error{Code: provider.CodeInvalid, Message: err.Error(), Err: err}
		}
		if cfg.Credentials == nil {
			return provider.Finish{}, noCredentials(errors.New("there are none"))
		}
		if _, err := cfg.Credentials.Retrieve(ctx); err != nil {
			b.forget()
			if ctx.Err() != nil {
				return provider.Finish{}, ctx.Err()
			}
			return provider.Finish{}, noCredentials(err)
		}
		cfg.AuthSchemePreference, cfg.BearerAuthTokenProvider = nil, nil
	}
	finish, err := stream(ctx, c, sink, bedrock.WithConfig(cfg), option.WithBaseURL(c.Endpoint.BaseURL))
	var pe *provider.Error
	if errors.As(err, &pe) && (pe.Status == 401 || pe.Status == 403) {
		b.forget()
	}
	return finish, err
}

func noCredentials(err error) error {
	return &provider.Error{Code: provider.CodeInvalid, Err: err,
		Message: "AWS's credentials could not be had from the environment, the shared files, single sign-on or a role: " + err.Error()}
}
