// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package build

import (
	"bytes"
	"os"
	"os/exec"
	"sync"
	"testing"
	"time"
)

// run returns a program's output.
func run(t *testing.T, path string) string {
	t.Helper()
	out, err := exec.Command(path).CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", path, err, out)
	}
	return string(out)
}

func modified(t *testing.T, path string) time.Time {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	return info.ModTime()
}

func sameFile(t *testing.T, a, b string) bool {
	t.Helper()
	first, err := os.Stat(a)
	if err != nil {
		t.Fatal(err)
	}
	second, err := os.Stat(b)
	if err != nil {
		t.Fatal(err)
	}
	return os.SameFile(first, second)
}

// cacheDirOf creates the cache folder of a pins module and returns it.
func cacheDirOf(t *testing.T, pins string) string {
	t.Helper()
	key, err := cacheKey(t.Context(), pins, programsPinnedIn(""))
	if err != nil {
		t.Fatal(err)
	}
	dir, err := cacheFolder(key)
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// syncBuffer is a buffer for concurrent writes and reads.
type syncBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}
