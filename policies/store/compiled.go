// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"

	"sluice.dev/policies/check"
	"sluice.dev/policies/engine"
)

// Compiler compiles policies with limits of time and memory; [check.Process] implements it.
type Compiler interface {
	// Compile returns a result for each source, in order. Sources are compiled with the libraries that they import.
	Compile(ctx context.Context, sources []engine.Source, libraries ...engine.Source) ([]check.Result, error)
}

// compiledVersions are the rejections of the compiled versions of policies, by the digest of the
// source and of the libraries that it may import; none for a version that the engine can compile.
type compiledVersions map[[sha256.Size]byte][]engine.Problem

// errNotCompiled reports that the compiler did not run. The policies in force stay.
var errNotCompiled = errors.New("the policies could not be compiled in a child process")

// rejectExhausting compiles the versions of policies that are new to this process, last good ones
// included, and sets the rejections of those that exhausted the compiler. The built-in policies are trusted.
// Libraries are compiled first, and a policy with those that it imports. If that exhausts the compiler and
// the policy alone is not new, the new libraries are rejected.
func (s *Store) rejectExhausting(ctx context.Context, sources []engine.Source) error {
	if s.Compiler == nil {
		return nil
	}
	var libraries, others []*engine.Source
	for i := range sources {
		for _, version := range versionsOf(&sources[i]) {
			if version.IsLibrary() {
				libraries = append(libraries, version)
			} else {
				others = append(others, version)
			}
		}
	}
	c := &compilation{
		store: s, current: make(compiledVersions), good: make(map[[sha256.Size]byte]bool),
		libraries: desiredLibraries(sources), newLibraries: make(map[[sha256.Size]byte]bool),
	}
	for _, library := range c.libraries {
		c.newLibraries[library.Digest()] = !s.good[library.Digest()]
	}
	if err := c.compile(ctx, libraries); err != nil {
		return err
	}
	c.libraries = desiredLibraries(sources) // without the rejected ones
	if err := c.compile(ctx, others); err != nil {
		return err
	}
	for _, library := range libraries {
		if c.newLibraries[library.Digest()] && len(library.Rejections) == 0 {
			library.Rejections = c.blamed
		}
	}
	if len(c.blamed) > 0 {
		c.good = s.good
	}
	s.compiled, s.good = c.current, c.good
	return nil
}

// versionsOf returns a source with its last good version, and the libraries of that.
func versionsOf(source *engine.Source) []*engine.Source {
	versions := []*engine.Source{source}
	if source.LastGood != nil {
		versions = append(versions, source.LastGood)
		for i := range source.LastGood.Libraries {
			versions = append(versions, &source.LastGood.Libraries[i])
		}
	}
	return versions
}

// desiredLibraries returns the libraries among sources that are not rejected.
func desiredLibraries(sources []engine.Source) []engine.Source {
	return slices.DeleteFunc(slices.Clone(sources), func(s engine.Source) bool { return !s.IsLibrary() || len(s.Rejections) > 0 })
}

// compilation compiles the new versions of one update.
type compilation struct {
	store   *Store
	current compiledVersions
	// good are the digests of the sources that did not exhaust the compiler.
	good      map[[sha256.Size]byte]bool
	libraries []engine.Source
	// newLibraries are the digests of libraries that were not compiled before, and blamed is why they are rejected.
	newLibraries map[[sha256.Size]byte]bool
	blamed       []engine.Problem
}

// key identifies a version with the libraries that it may import.
func (c *compilation) key(version *engine.Source) [sha256.Size]byte {
	digest := version.Digest()
	if !engine.MayImport(*version) || len(c.libraries) == 0 {
		return digest
	}
	h := sha256.New()
	h.Write(digest[:])
	for i := range c.libraries {
		of := c.libraries[i].Digest()
		h.Write(of[:])
	}
	return [sha256.Size]byte(h.Sum(nil))
}

// compile sets the rejections of versions.
func (c *compilation) compile(ctx context.Context, versions []*engine.Source) error {
	var fresh []engine.Source
	keys := make([][sha256.Size]byte, len(versions))
	var freshKeys [][sha256.Size]byte
	for i, version := range versions {
		keys[i] = c.key(version)
		if rejections, ok := c.store.compiled[keys[i]]; ok {
			c.current[keys[i]] = rejections
		} else if !version.BuiltIn && !slices.Contains(freshKeys, keys[i]) {
			fresh, freshKeys = append(fresh, *version), append(freshKeys, keys[i])
		}
	}
	if len(fresh) > 0 {
		results, err := c.store.Compiler.Compile(ctx, fresh, c.libraries...)
		if err != nil {
			return fmt.Errorf("%w: %w", errNotCompiled, err)
		}
		for i, result := range results {
			c.current[freshKeys[i]] = nil
			switch {
			case !result.Exhausted:
			case !fresh[i].IsLibrary() && c.store.good[fresh[i].Digest()]:
				problem := result.Problems[0]
				c.blamed = []engine.Problem{{Message: fmt.Sprintf(
					"policy %s cannot be compiled with the new version of a library: %s", problem.Policy, problem.Message,
				)}}
			default:
				c.current[freshKeys[i]] = result.Problems
			}
		}
	}
	for i, version := range versions {
		version.Rejections = c.current[keys[i]]
		c.good[version.Digest()] = len(version.Rejections) == 0
	}
	return nil
}
