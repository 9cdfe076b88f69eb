// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package build

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// cacheVariable names the folder of the cache; the default is sluice in the
// user's cache folder.
const cacheVariable = "SLUICE_CACHE"

// cacheKey covers all that decides over the outcome of the build of what one
// module pins: the pins, the compiler, the system, and the flags.
func cacheKey(ctx context.Context, pins string, pinned []program) (string, error) {
	toolchain, err := goOutput(ctx, pins, hostEnv(), "env", "GOVERSION", "GOOS", "GOARCH", "GOAMD64", "GOARM64", "GOEXPERIMENT")
	if err != nil {
		return "", fmt.Errorf("ask the go command for its version: %w", err)
	}
	hash := sha256.New()
	// The stamps' values follow from go.mod; their names must show in the key.
	placeholder := moduleInfo{Version: "v1.0.0"}
	for _, p := range pinned {
		fmt.Fprintln(hash, p.pkg, strings.Join(flags(p, placeholder), " "))
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

// cacheFolder makes the folder of one key.
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
		return "", fmt.Errorf("make the cache for the cluster's programs: %w (set %s to a folder that you may write)", err, cacheVariable)
	}
	return dir, nil
}
