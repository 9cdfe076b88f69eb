// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"sluice.dev/api/v1alpha1"
)

// Options are what an Engine is made with.
type Options struct {
	// Libraries are the modules that policies may import.
	Libraries []Library
	// Limits bound how long policies may take.
	Limits Limits
	// Remember is how many of each policy's latest answers are kept, so that the
	// pods that are alike in what it reads are asked about once; 256 where it is 0,
	// none where it is negative. At most twice as many are held at a time, and about
	// 2 MiB of them.
	Remember int
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
	inForce map[string]*policy
	modules map[digest]*attempt
}

// New returns an Engine without policies: until the first Update it answers
// nothing. The error names every fault of the libraries.
func New(options Options) (*Engine, error) {
	options.Limits = options.Limits.orDefault()
	if options.Remember == 0 {
		options.Remember = 256
	}
	c, problems := newCompiler(options.Libraries)
	if len(problems) > 0 {
		var faults []error
		for _, problem := range named("libraries", problems) {
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

// Type asks the policies in force, as [Set.Type] does.
func (e *Engine) Type(ctx context.Context, in Input) (v1alpha1.WorkloadType, error) {
	set, err := e.Current()
	if err != nil {
		return "", err
	}
	return set.Type(ctx, in)
}

// EvaluateObjects asks the policies in force, as [Set.EvaluateObjects] does.
func (e *Engine) EvaluateObjects(ctx context.Context, in Input) (Rendering, error) {
	set, err := e.Current()
	if err != nil {
		return Rendering{}, err
	}
	return set.EvaluateObjects(ctx, in)
}
