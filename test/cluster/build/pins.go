// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package build

import (
	"bufio"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strings"
)

const (
	productModule = "sluice.dev"
	pinsModule    = "sluice.dev/test/cluster/pins"
	// pinsVariable names the pins folder where it cannot be found otherwise.
	pinsVariable = "SLUICE_PINS"
	pinsFolder   = "test/cluster/pins"
)

// Root returns the folder of the product's go.mod: the nearest one above the
// working directory, or else above the running program.
func Root() (string, error) {
	wd, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("find the folder of module %s: %w", productModule, err)
	}
	starts := []string{wd}
	if self, err := os.Executable(); err == nil {
		if target, err := filepath.EvalSymlinks(self); err == nil {
			starts = append(starts, filepath.Dir(target))
		}
	}
	for _, start := range starts {
		for dir := start; ; dir = filepath.Dir(dir) {
			if moduleOf(dir) == productModule {
				return dir, nil
			}
			if dir == filepath.Dir(dir) {
				break
			}
		}
	}
	return "", fmt.Errorf("no go.mod of module %s above %s: run inside Sluice's source tree",
		productModule, strings.Join(starts, " or "))
}

// findPins returns the folder of the pins module, or of one below it.
func findPins(below string) (string, error) {
	module := path.Join(pinsModule, below)
	if dir := os.Getenv(pinsVariable); dir != "" {
		dir := filepath.Join(dir, below)
		if got := moduleOf(dir); got != module {
			return "", fmt.Errorf("%s=%s: must be the folder of module %s (found %q in %s)", pinsVariable, os.Getenv(pinsVariable), pinsModule, got, dir)
		}
		return filepath.Abs(dir)
	}
	root, err := Root()
	if err != nil {
		return "", fmt.Errorf("%w, or set %s to its folder %s, or %s to a folder with the programs %s",
			err, pinsVariable, pinsFolder, assetsVariable, strings.Join(namesOf(pinnedIn(below)), ", "))
	}
	dir := filepath.Join(root, filepath.FromSlash(pinsFolder), below)
	if moduleOf(dir) != module {
		return "", fmt.Errorf("%s: no go.mod of module %s there; set %s to the folder of module %s", dir, module, pinsVariable, pinsModule)
	}
	return dir, nil
}

// moduleOf returns the module path in dir/go.mod, "" where there is none.
func moduleOf(dir string) string {
	file, err := os.Open(filepath.Join(dir, "go.mod"))
	if err != nil {
		return ""
	}
	defer file.Close()
	for lines := bufio.NewScanner(file); lines.Scan(); {
		if path, ok := strings.CutPrefix(strings.TrimSpace(lines.Text()), "module "); ok {
			return strings.Trim(strings.TrimSpace(path), `"`)
		}
	}
	return ""
}
