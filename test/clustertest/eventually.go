// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package clustertest

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

const (
	// defaultTimeout is for a machine on which much else runs. It only delays a failure, and is shorter than the five
	// minutes after which Kubernetes' controllers repeat what they missed.
	defaultTimeout = 4 * time.Minute
	// The interval grows with the wait: what is quick is seen at once, and what takes long
	// does not keep the API server busy.
	firstPollInterval = 25 * time.Millisecond
	maxPollInterval   = 400 * time.Millisecond
)

// Eventually waits until condition returns nil. After four minutes it fails the test at once
// with the last error.
func Eventually(t testing.TB, condition func() error) {
	t.Helper()
	EventuallyWithin(t, defaultTimeout, condition)
}

// EventuallyWithin is Eventually with another timeout. It calls condition at least once,
// also if the timeout is 0.
func EventuallyWithin(t testing.TB, within time.Duration, condition func() error) {
	t.Helper()
	deadline := time.NewTimer(within)
	defer deadline.Stop()
	for interval := firstPollInterval; ; interval = min(interval*5/4, maxPollInterval) {
		err := condition()
		if err == nil {
			return
		}
		select {
		case <-deadline.C:
			t.Fatalf("not within %s: %v", within, err)
		case <-time.After(interval):
		}
	}
}

var invalidNameChars = regexp.MustCompile(`[^a-z0-9]+`)

// Namespace creates a namespace named after the test, waits until pods can be created in
// it, and deletes it when the test ends.
func Namespace(t testing.TB, c *Cluster) string {
	t.Helper()
	client, err := kubernetes.NewForConfig(c.Config())
	if err != nil {
		t.Fatal(err)
	}
	created, err := client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{
		ObjectMeta: metav1.ObjectMeta{GenerateName: namespacePrefix(t.Name())},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatalf("create namespace for the test: %v", err)
	}
	t.Cleanup(func() {
		// The test's own context has ended by now. Kubernetes deletes the contents in the
		// background.
		err := client.CoreV1().Namespaces().Delete(context.Background(), created.Name, metav1.DeleteOptions{})
		if err != nil {
			t.Errorf("delete namespace of the test: %v", err)
		}
	})
	Eventually(t, func() error {
		_, err := client.CoreV1().ServiceAccounts(created.Name).Get(t.Context(), "default", metav1.GetOptions{})
		return err
	})
	return created.Name
}

// namespacePrefix turns a test's name into the beginning of a namespace's name.
func namespacePrefix(test string) string {
	name := strings.Trim(invalidNameChars.ReplaceAllString(strings.ToLower(test), "-"), "-")
	return name[:min(len(name), 50)] + "-"
}

const (
	// maxLogLines limits the lines shown of each component's log.
	maxLogLines = 15
	maxLogBytes = 64 << 10
)

// showLogsOnFailure prints what the cluster's components logged during the test if the test fails.
func showLogsOnFailure(t testing.TB, c *Cluster) {
	logs := func() []string {
		paths, _ := filepath.Glob(filepath.Join(c.Dir(), "logs", "*.log"))
		return paths
	}
	before := map[string]int64{}
	for _, log := range logs() {
		if info, err := os.Stat(log); err == nil {
			before[log] = info.Size()
		}
	}
	t.Cleanup(func() {
		if !t.Failed() {
			return
		}
		for _, log := range logs() {
			tail, err := tailSince(log, before[log])
			if err != nil {
				tail = err.Error()
			}
			t.Logf("%s logged during this test:\n%s", strings.TrimSuffix(filepath.Base(log), ".log"), tail)
		}
	})
}

// tailSince returns the last lines that a log has gained since offset.
func tailSince(path string, offset int64) (string, error) {
	file, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return "", err
	}
	if info.Size() < offset { // truncated or rotated meanwhile
		offset = 0
	}
	content, err := io.ReadAll(io.NewSectionReader(file, max(offset, info.Size()-maxLogBytes), maxLogBytes))
	if err != nil {
		return "", err
	}
	lines := strings.Split(strings.TrimRight(string(content), "\n"), "\n")
	if left := len(lines) - maxLogLines; left > 0 {
		lines = append([]string{fmt.Sprintf("... %d lines before", left)}, lines[left:]...)
	}
	return "    " + strings.Join(lines, "\n    "), nil
}
