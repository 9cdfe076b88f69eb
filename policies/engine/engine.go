// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/topdown/cache"

	"sluice.dev/api/v1alpha1"
)

// Options configure an Engine.
type Options struct {
	// Libraries are the modules that policies may import.
	Libraries []Library
	// Limits limit the evaluation time of policies.
	Limits Limits
	// CacheEntries is the number of latest results to cache for each policy; 256 if it is
	// 0, none if it is negative. The cache holds at most twice as many, and about 2 MiB.
	CacheEntries int
	// Observe receives every evaluation, if it is set. The engine calls it before it
	// returns the result, on the caller's goroutine. It must be fast and safe for
	// concurrent use.
	Observe func(Evaluation)
}

// Engine holds the active policies and replaces them as a whole set. It is safe for
// concurrent use.
type Engine struct {
	options  Options
	compiler *compiler
	current  atomic.Pointer[Set]

	// mu guards the fields that Update keeps for the next Update.
	mu      sync.Mutex
	active  map[string]*policy
	modules map[compilationKey]*compilation
	// libraries are the last good versions of the libraries of teams, and world those in force.
	libraries map[string]*teamLibrary
	world     *libraryWorld
	reads     map[digest]moduleReads
	// data is what the next set reads.
	data *Data

	// omitUnusable: sets omit policies without a good version.
	omitUnusable bool
}

// New returns an Engine without policies: until the first Update every request returns
// ErrNotLoaded. The error lists every problem of the libraries.
func New(options Options) (*Engine, error) {
	limitCalls()
	options.Limits = options.Limits.WithDefaults()
	if options.CacheEntries == 0 {
		options.CacheEntries = 256
	}
	c, problems := newCompiler(options.Libraries)
	if len(problems) > 0 {
		var faults []error
		for _, problem := range withPolicyName("libraries", problems) {
			faults = append(faults, problem)
		}
		return nil, fmt.Errorf("compile the policies' libraries: %w", errors.Join(faults...))
	}
	return &Engine{options: options, compiler: c}, nil
}

// Current returns the active policies, or ErrNotLoaded before the first Update.
func (e *Engine) Current() (*Set, error) {
	set := e.current.Load()
	if set == nil {
		return nil, ErrNotLoaded
	}
	return set, nil
}

// RenderObjects evaluates the active policies; see [Set.RenderObjects].
func (e *Engine) RenderObjects(ctx context.Context, in Input) (Rendering, error) {
	set, err := e.Current()
	if err != nil {
		return Rendering{}, err
	}
	return set.RenderObjects(ctx, in)
}

// policy is an active policy: a compiled module with its match and parameters.
type policy struct {
	// source is the compiled source. It has no text, unless it imports libraries of teams.
	source Source
	// imports are these libraries, with those that they import.
	imports    []*teamLibrary
	digest     digest
	module     *module
	parameters *ast.Term
	// caches hold the results for each kind of request. Rendered objects are never
	// cached.
	caches [requestKindCount]*resultCache
	// unusable is why no version of the policy can be evaluated; nil if one can.
	unusable error
}

func (p *policy) enforcement() v1alpha1.Enforcement { return p.source.enforcement() }

// replacedPolicy returns the name of the built-in policy that this policy replaces; "" if
// it replaces none.
func (p *policy) replacedPolicy() string {
	if p.enforcement() == v1alpha1.EnforcementDryRun {
		return ""
	}
	return p.source.Replaces
}

// patternCache keeps compiled regex and glob patterns between evaluations.
var patternCache = func() cache.InterQueryValueCache {
	entries := 1000
	return cache.NewInterQueryValueCache(context.Background(), &cache.Config{
		InterQueryBuiltinValueCache: cache.InterQueryBuiltinValueCacheConfig{MaxNumEntries: &entries},
	})
}()

// Errors of a policy that could not be evaluated.
var (
	// ErrDeadline: the evaluation of the policy took longer than one may.
	ErrDeadline = errors.New("its evaluation took longer than that of one policy may")
	// ErrShape: a rule returned a value of the wrong type.
	ErrShape = errors.New("a value of the wrong type")
)

// Errors of a request that could not be evaluated in time. No policy is to blame, and the
// same request may succeed later.
var (
	// ErrRequestDeadline: the deadline of the request passed before all policies were
	// evaluated.
	ErrRequestDeadline = errors.New("the request's deadline passed before all policies were evaluated")
	// ErrBusy: an evaluation took longer than one may, while the process did not get the processors for it.
	ErrBusy = errors.New("the webhook has too little processor time")
)

// ErrNotLoaded reports that no policies are loaded yet. The caller must not admit the object.
var ErrNotLoaded = errors.New("no policies are loaded yet")
