// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

// metricsReader is the account that reads metrics in tests, as Prometheus would.
const metricsReader = "metrics-reader"

// componentMetrics returns the metrics of a component at an address, read with a token of an account that may read them.
func (s *sluiceCluster) componentMetrics(t testing.TB, address string) (string, error) {
	t.Helper()
	token, err := s.newMetricsToken(t, metricsReader, "sluice-metrics-reader")
	if err != nil {
		return "", err
	}
	status, body, err := getWithToken(t.Context(), "https://"+address+"/metrics", token)
	if err == nil && status != http.StatusOK {
		err = fmt.Errorf("%s: %d %s", address, status, body)
	}
	return body, err
}

// newMetricsToken returns a token of an account with a ClusterRole; without one for "".
func (s *sluiceCluster) newMetricsToken(t testing.TB, account, role string) (string, error) {
	t.Helper()
	meta := metav1.ObjectMeta{Name: account, Namespace: metav1.NamespaceDefault}
	accounts := s.clientset.CoreV1().ServiceAccounts(meta.Namespace)
	if _, err := accounts.Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: meta}, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		return "", err
	}
	if role != "" {
		binding := &rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: "test-" + account},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
			Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: meta.Namespace, Name: account}},
		}
		if _, err := s.clientset.RbacV1().ClusterRoleBindings().Create(t.Context(), binding, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
			return "", err
		}
	}
	request, err := accounts.CreateToken(t.Context(), account, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		return "", err
	}
	return request.Status.Token, nil
}

// getWithToken sends a request to a server with a self-signed certificate; without a token for "".
func getWithToken(ctx context.Context, url, token string) (status int, body string, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return 0, "", err
	}
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true}
	response, err := (&http.Client{Transport: transport}).Do(request)
	if err != nil {
		return 0, "", err
	}
	defer response.Body.Close()
	raw, err := io.ReadAll(response.Body)
	return response.StatusCode, string(raw), err
}

// componentAddress returns the address in a field of the configuration of a component in `sluice up`.
func (s *sluiceCluster) componentAddress(t testing.TB, component, field string) string {
	t.Helper()
	raw, err := os.ReadFile(s.configurationFile(component))
	if err != nil {
		t.Fatal(err)
	}
	var config map[string]any
	if err := yaml.Unmarshal(raw, &config); err != nil {
		t.Fatal(err)
	}
	return fmt.Sprint(config[field])
}

// The metrics of each component are served over TLS, to clients with a token and the right to read them. Profiles are off.
func TestMetricsNeedARight(t *testing.T) {
	s := sharedCluster
	allowed, err := s.newMetricsToken(t, metricsReader, "sluice-metrics-reader")
	if err != nil {
		t.Fatal(err)
	}
	other, err := s.newMetricsToken(t, "no-metrics-reader", "")
	if err != nil {
		t.Fatal(err)
	}
	folders, err := filepath.Glob(s.podDir("gpuagent-*"))
	if err != nil || len(folders) == 0 {
		t.Fatalf("no agent: %v", err)
	}
	for component, metric := range map[string]string{
		"webhook":                 "sluice_certificate_expiry_timestamp_seconds",
		"lifecycle":               "controller_runtime_reconcile_total",
		filepath.Base(folders[0]): "process_resident_memory_bytes",
	} {
		t.Run(component, func(t *testing.T) {
			address := s.componentAddress(t, component, "metrics")
			for token, want := range map[string]int{"": http.StatusUnauthorized, other: http.StatusForbidden, allowed: http.StatusOK} {
				status, body, err := getWithToken(t.Context(), "https://"+address+"/metrics", token)
				if err != nil || status != want {
					t.Errorf("status %d (%v), want %d", status, err, want)
				}
				if status != http.StatusOK && strings.Contains(body, "# HELP") {
					t.Error("metrics in a refusal")
				}
				if status == http.StatusOK && !strings.Contains(body, "\n"+metric) {
					t.Errorf("no %s in %d bytes", metric, len(body))
				}
			}
			// controller-runtime answers 500 to a token that the API server does not know, the agent 401.
			if status, _, err := getWithToken(t.Context(), "https://"+address+"/metrics", "invalid"); err != nil || status < http.StatusUnauthorized {
				t.Errorf("an invalid token: %d, %v", status, err)
			}
			if response, err := http.Get("http://" + address + "/metrics"); err == nil {
				if response.Body.Close(); response.StatusCode == http.StatusOK {
					t.Error("served without TLS")
				}
			}
			status, _, err := getWithToken(t.Context(), "https://"+address+"/debug/pprof/", allowed)
			if err != nil || status == http.StatusOK {
				t.Errorf("profiles: %d, %v", status, err)
			}
		})
	}
}
