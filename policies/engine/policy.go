// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"sync/atomic"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/topdown/cache"

	"sluice.dev/api/v1alpha1"
)

// policy is one policy in force: a compiled module with the match and the
// parameters that came with it.
type policy struct {
	// source is what was compiled, without its text.
	source     Source
	digest     digest
	module     *module
	parameters *ast.Term
	// memories keep its answers to each question; objects are always rendered anew.
	memories [questionCount]*memory
	// stuck is how many evaluations were left behind and have not come back.
	stuck atomic.Int32
}

func (p *policy) enforcement() v1alpha1.Enforcement { return p.source.enforcement() }

// replaces is the built-in policy in whose place this one is asked; mostly none.
func (p *policy) replaces() string {
	if p.enforcement() == v1alpha1.EnforcementDryRun {
		return ""
	}
	return p.source.Replaces
}

// patterns keeps the compiled patterns of regex and glob between evaluations.
var patterns = func() cache.InterQueryValueCache {
	entries := 1000
	return cache.NewInterQueryValueCache(context.Background(), &cache.Config{
		InterQueryBuiltinValueCache: cache.InterQueryBuiltinValueCacheConfig{MaxNumEntries: &entries},
	})
}()
