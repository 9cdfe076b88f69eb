// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package clustertest

import (
	"context"
	"regexp"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"sluice.dev/test/cluster"
)

var notInNames = regexp.MustCompile(`[^a-z0-9]+`)

// Namespace makes a namespace for one test, named after it, in which pods can be
// made at once, and deletes it when the test has ended.
func Namespace(t testing.TB, c *cluster.Cluster) string {
	t.Helper()
	client, err := kubernetes.NewForConfig(c.Config())
	if err != nil {
		t.Fatal(err)
	}
	made, err := client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{
		ObjectMeta: metav1.ObjectMeta{GenerateName: prefix(t.Name())},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatalf("make namespace for the test: %v", err)
	}
	t.Cleanup(func() {
		// The test's own context has ended by now. What is in the namespace goes
		// in the background.
		err := client.CoreV1().Namespaces().Delete(context.Background(), made.Name, metav1.DeleteOptions{})
		if err != nil {
			t.Errorf("delete namespace of the test: %v", err)
		}
	})
	Eventually(t, func() error {
		_, err := client.CoreV1().ServiceAccounts(made.Name).Get(t.Context(), "default", metav1.GetOptions{})
		return err
	})
	return made.Name
}

// prefix turns a test's name into the beginning of a namespace's.
func prefix(test string) string {
	name := strings.Trim(notInNames.ReplaceAllString(strings.ToLower(test), "-"), "-")
	return name[:min(len(name), 50)] + "-"
}
