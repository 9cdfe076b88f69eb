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

// Options are what an Engine is made with.
type Options struct {
	// Libraries are the modules that policies may import.
	Libraries []Library
	// Limits bound how long policies may take.
	Limits Limits
	// CacheEntries is how many of each policy's latest answers are kept, so that the
	// pods that are alike in what it reads are asked about once; 256 where it is 0,
	// none where it is negative. At most twice as many are held at a time, and about
	// 2 MiB of them.
	CacheEntries int
	// Observe is told of every evaluation, where it is set: on the goroutine of the
	// one who asked, before the answer. It must be quick, and safe to call at once
	// from many goroutines.
	Observe func(Evaluation)
}

// Engine holds the policies in force, and swaps them whole. It is safe for
// concurrent use.
type Engine struct {
	options  Options
	compiler *compiler
	current  atomic.Pointer[Set]

	// mu guards what Update remembers from one time to the next.
	mu      sync.Mutex
	active  map[string]*policy
	modules map[digest]*compilation
}

// New returns an Engine without policies: until the first Update it answers
// nothing. The error names every fault of the libraries.
func New(options Options) (*Engine, error) {
	options.Limits = options.Limits.withDefaults()
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

// Current returns the policies in force, or ErrNotLoaded before the first
// Update.
func (e *Engine) Current() (*Set, error) {
	set := e.current.Load()
	if set == nil {
		return nil, ErrNotLoaded
	}
	return set, nil
}

// Evaluate asks the policies in force, as [Set.Evaluate] does.
func (e *Engine) Evaluate(ctx context.Context, in Input) (Outcome, error) {
	set, err := e.Current()
	if err != nil {
		return Outcome{}, err
	}
	return set.Evaluate(ctx, in)
}

// WorkloadType asks the policies in force, as [Set.Type] does.
func (e *Engine) WorkloadType(ctx context.Context, in Input) (v1alpha1.WorkloadType, error) {
	set, err := e.Current()
	if err != nil {
		return "", err
	}
	return set.WorkloadType(ctx, in)
}

// RenderObjects asks the policies in force, as [Set.EvaluateObjects] does.
func (e *Engine) RenderObjects(ctx context.Context, in Input) (Rendering, error) {
	set, err := e.Current()
	if err != nil {
		return Rendering{}, err
	}
	return set.RenderObjects(ctx, in)
}

// policy is one policy in force: a compiled module with the match and the
// parameters that came with it.
type policy struct {
	// source is what was compiled, without its text.
	source     Source
	digest     digest
	module     *module
	parameters *ast.Term
	// caches keep its answers to each question; objects are always rendered anew.
	caches [requestKindCount]*resultCache
	// stuckEvaluations is how many evaluations were left behind and have not come back.
	stuckEvaluations atomic.Int32
}

func (p *policy) enforcement() v1alpha1.Enforcement { return p.source.enforcement() }

// replacedPolicy is the built-in policy in whose place this one is asked; mostly none.
func (p *policy) replacedPolicy() string {
	if p.enforcement() == v1alpha1.EnforcementDryRun {
		return ""
	}
	return p.source.Replaces
}

// patternCache keeps the compiled patterns of regex and glob between evaluations.
var patternCache = func() cache.InterQueryValueCache {
	entries := 1000
	return cache.NewInterQueryValueCache(context.Background(), &cache.Config{
		InterQueryBuiltinValueCache: cache.InterQueryBuiltinValueCacheConfig{MaxNumEntries: &entries},
	})
}()

// Why a policy could not be asked.
var (
	// ErrDeadline: the policy took longer than an evaluation may.
	ErrDeadline = errors.New("it took longer than it may")
	// ErrRequestDeadline: the request's time was over before the policy was
	// through, or even asked.
	ErrRequestDeadline = errors.New("the request's time was over")
	// ErrBusy: an earlier evaluation of the policy is stuck in a built-in function
	// that cannot be stopped, and has not come back yet.
	ErrBusy = errors.New("an earlier evaluation has not come back")
	// ErrShape: a rule gave a value that is not what the rule is.
	ErrShape = errors.New("a value of the wrong shape")
)

// ErrNotLoaded means that no policies were loaded yet. Whoever asks must not admit.
var ErrNotLoaded = errors.New("no policies are loaded yet")
