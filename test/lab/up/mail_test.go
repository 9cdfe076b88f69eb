// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package up

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"sluice.dev/api/config"
	lifecycleconfig "sluice.dev/lifecycle/config"
)

func TestInstallMailCreatesSecretOnce(t *testing.T) {
	c := fake.NewClientBuilder().Build()
	first, err := installMail(t.Context(), c, newMailAccess([]int{2525}, "/ca.crt"))
	if err != nil {
		t.Fatal(err)
	}
	if first.server != "127.0.0.1:2525" || first.username == "" || len(first.password) < 26 {
		t.Errorf("%+v", first)
	}
	again, err := installMail(t.Context(), c, newMailAccess([]int{2526}, "/ca.crt"))
	if err != nil || again.password != first.password || again.server != "127.0.0.1:2526" {
		t.Errorf("%+v, %v, want the password %s", again, err, first.password)
	}
	others, err := installMail(t.Context(), fake.NewClientBuilder().Build(), newMailAccess([]int{2525}, "/ca.crt"))
	if err != nil || others.password == first.password {
		t.Errorf("another cluster has the same password: %v", err)
	}
}

func TestInstallMailRejectsIncompleteSecret(t *testing.T) {
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: "sluice-system", Name: mailSecret},
		Data:       map[string][]byte{"username": []byte("lifecycle")},
	}
	_, err := installMail(t.Context(), fake.NewClientBuilder().WithObjects(secret).Build(), newMailAccess([]int{2525}, "/ca.crt"))
	if err == nil || !strings.Contains(err.Error(), "delete the Secret to create it again") {
		t.Error(err)
	}
}

// Lifecycle accepts the configuration.
func TestMailConfig(t *testing.T) {
	s := componentContext{mail: mailAccess{server: "127.0.0.1:2525", caFile: "/ca.crt", username: "u", password: "secret"}}
	c := lifecycleconfig.Config{
		TypeMeta: metav1.TypeMeta{APIVersion: config.APIVersion, Kind: lifecycleconfig.Kind},
		Common:   config.Common{Kubeconfig: "/kubeconfig", Health: "127.0.0.1:1", Metrics: "127.0.0.1:2"},
		Mail:     s.mailConfig(),
	}
	c.Default()
	if errs := c.Validate(); len(errs) > 0 {
		t.Error(errs)
	}
	type fields struct {
		From, Domain, Hello string
		PerMinute, PerDay   int
	}
	want := fields{From: "Sluice <sluice@cluster.example>", Domain: "cluster.example", Hello: "cluster.example"}
	got := fields{c.Mail.From, c.Mail.Domain, c.Mail.Hello, *c.Mail.Rate.PerMinute, *c.Mail.Rate.PerRecipientPerDay}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}
