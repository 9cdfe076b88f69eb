// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package build

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strings"
)

// cacheVariable names the folder of the cache; the default is sluice in the user's cache
// folder.
const cacheVariable = "SLUICE_CACHE"

// cacheKey returns a hash of all inputs that can change the programs of one pins module:
// the pins, the compiler, the system and the flags.
func cacheKey(ctx context.Context, pins string, pinned []program) (string, error) {
	toolchain, err := goOutput(ctx, pins, hostEnv(), "env", "GOVERSION", "GOOS", "GOARCH", "GOAMD64", "GOARM64", "GOEXPERIMENT")
	if err != nil {
		return "", fmt.Errorf("get the version of the go command: %w", err)
	}
	hash := sha256.New()
	// The values of the version flags follow from go.mod; the key must also cover their
	// names.
	placeholder := moduleInfo{Version: "v1.0.0"}
	for _, p := range pinned {
		fmt.Fprintln(hash, p.pkg, strings.Join(buildFlags(p, placeholder), " "))
	}
	fmt.Fprintln(hash, toolchain)
	for _, name := range []string{"go.mod", "go.sum"} {
		content, err := os.ReadFile(filepath.Join(pins, name))
		if err != nil {
			return "", fmt.Errorf("read the pins: %w", err)
		}
		fmt.Fprintf(hash, "%s %d\n%s", name, len(content), content)
	}
	return hex.EncodeToString(hash.Sum(nil)[:12]), nil
}

// cacheFolder creates the folder of one key.
func cacheFolder(key string) (string, error) {
	base := os.Getenv(cacheVariable)
	if base == "" {
		user, err := os.UserCacheDir()
		if err != nil {
			return "", fmt.Errorf("find the user's cache folder: %w (set %s to a folder)", err, cacheVariable)
		}
		base = filepath.Join(user, "sluice")
	}
	base, err := filepath.Abs(base)
	if err != nil {
		return "", fmt.Errorf("%s=%s: %w", cacheVariable, base, err)
	}
	dir := filepath.Join(base, key)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", fmt.Errorf("create the cache for the cluster's programs: %w (set %s to a folder that you may write)", err, cacheVariable)
	}
	return dir, nil
}

const (
	productModule = "sluice.dev"
	pinsModule    = "sluice.dev/test/lab/cluster/pins"
	// pinsVariable names the folder of the pins module if it is not in the source tree.
	pinsVariable = "SLUICE_PINS"
	pinsFolder   = "test/lab/cluster/pins"
)

// Root returns the folder of the product's go.mod: the nearest one above the working
// directory, or else above the running program.
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

// findPins returns the folder of the pins module, or of a module below it.
func findPins(below string) (string, error) {
	module := path.Join(pinsModule, below)
	if dir := os.Getenv(pinsVariable); dir != "" {
		dir := filepath.Join(dir, below)
		if got := moduleOf(dir); got != module {
			return "", fmt.Errorf("%s=%s: must be the folder of module %s (found %q in %s)", pinsVariable,
				os.Getenv(pinsVariable), pinsModule, got, dir)
		}
		return filepath.Abs(dir)
	}
	root, err := Root()
	if err != nil {
		return "", fmt.Errorf("%w, or set %s to its folder %s, or %s to a folder with the programs %s",
			err, pinsVariable, pinsFolder, assetsVariable, strings.Join(namesOf(programsPinnedIn(below)), ", "))
	}
	dir := filepath.Join(root, filepath.FromSlash(pinsFolder), below)
	if moduleOf(dir) != module {
		return "", fmt.Errorf("%s: no go.mod of module %s there; set %s to the folder of module %s", dir, module, pinsVariable, pinsModule)
	}
	return dir, nil
}

// moduleOf returns the module path in dir/go.mod, or "" if there is none.
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

// Manifests returns the folder with the manifests of a program's module, for the program's
// path that Programs returned. Only Kueue has such a folder.
func Manifests(path string) string {
	return path + ".manifests"
}

// copyManifests copies the manifests of the program's module to the folder that belongs to
// the program at path. The rename comes last, so that the folder is complete if it exists.
func copyManifests(ctx context.Context, pins, path string, p program) error {
	dir, err := goOutput(ctx, pins, hostEnv(), "list", "-m", "-f", "{{.Dir}}", p.module)
	if err != nil {
		return err
	}
	target := Manifests(path)
	temporary := target + unfinished
	if err := errors.Join(os.RemoveAll(temporary), os.RemoveAll(target)); err != nil {
		return err
	}
	if err := os.CopyFS(temporary, os.DirFS(filepath.Join(strings.TrimSpace(dir), p.manifests))); err != nil {
		return err
	}
	return os.Rename(temporary, target)
}

// existsAt reports whether path holds the program, with its manifests if it has any.
func (p program) existsAt(path string) bool {
	if !isProgram(path) {
		return false
	}
	if p.manifests == "" {
		return true
	}
	info, err := os.Stat(Manifests(path))
	return err == nil && info.IsDir()
}
