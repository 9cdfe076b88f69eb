// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"

	"sluice.dev/policies/check"
	"sluice.dev/policies/engine"
)

// Compiler compiles policies with limits of time and memory; [check.Process] implements it.
type Compiler interface {
	// Compile returns a result for each source, in order.
	Compile(ctx context.Context, sources []engine.Source) ([]check.Result, error)
}

// compiledVersions are the rejections of the compiled versions of policies, by the digest of the
// source; none for a version that the engine can compile.
type compiledVersions map[[sha256.Size]byte][]engine.Problem

// errNotCompiled reports that the compiler did not run. The policies in force stay.
var errNotCompiled = errors.New("the policies could not be compiled in a child process")

// rejectExhausting compiles the versions of policies that are new to this process, last good ones
// included, and sets the rejections of those that exhausted the compiler. The built-in policies are trusted.
func (s *Store) rejectExhausting(ctx context.Context, sources []engine.Source) error {
	if s.Compiler == nil {
		return nil
	}
	versions := make([]*engine.Source, 0, len(sources))
	for i := range sources {
		versions = append(versions, &sources[i])
		if sources[i].LastGood != nil {
			versions = append(versions, sources[i].LastGood)
		}
	}
	var fresh []engine.Source
	var freshDigests [][sha256.Size]byte
	digests := make([][sha256.Size]byte, len(versions))
	current := make(compiledVersions, len(versions))
	for i, version := range versions {
		digests[i] = version.Digest()
		if rejections, ok := s.compiled[digests[i]]; ok {
			current[digests[i]] = rejections
		} else if !version.BuiltIn {
			fresh, freshDigests = append(fresh, *version), append(freshDigests, digests[i])
		}
	}
	if len(fresh) > 0 {
		results, err := s.Compiler.Compile(ctx, fresh)
		if err != nil {
			return fmt.Errorf("%w: %w", errNotCompiled, err)
		}
		for i, result := range results {
			if current[freshDigests[i]] = nil; result.Exhausted {
				current[freshDigests[i]] = result.Problems
			}
		}
	}
	for i, version := range versions {
		version.Rejections = current[digests[i]]
	}
	s.compiled = current
	return nil
}
