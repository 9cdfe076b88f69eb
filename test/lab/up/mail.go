// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package up

import (
	"context"
	"crypto/rand"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/v1alpha1"
	lifecycleconfig "sluice.dev/lifecycle/config"
	"sluice.dev/test/lab/cluster/mailsink"
	"sluice.dev/test/lab/cluster/process"
)

const (
	mailsinkName = "mailsink"
	// mailSecret is the Secret with lifecycle's credentials. The manifests let
	// lifecycle read a Secret of this name.
	mailSecret = "sluice-mail"
	mailUser   = "lifecycle"
	// mailDomain is reserved (RFC 2606).
	mailDomain = "cluster.example"
)

// MailDir returns the folder of the mails of the embedded cluster in dir.
func MailDir(dir string) string { return filepath.Join(dir, "mail") }

// mailAccess is the address and the credentials of the mail sink.
type mailAccess struct {
	// server is host:port, and caFile the certificate that signed the server's.
	server, caFile     string
	username, password string
}

// newMailAccess returns the address of the mail sink, which listens on the first port.
func newMailAccess(ports []int, caFile string) mailAccess {
	return mailAccess{server: net.JoinHostPort("127.0.0.1", strconv.Itoa(ports[0])), caFile: caFile}
}

// installMail creates the Secret of the mail sink in a new cluster, and returns the
// access with its content.
func installMail(ctx context.Context, c client.Client, access mailAccess) (mailAccess, error) {
	secret := &corev1.Secret{}
	err := c.Get(ctx, client.ObjectKey{Namespace: v1alpha1.SystemNamespace, Name: mailSecret}, secret)
	if apierrors.IsNotFound(err) {
		secret = &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.SystemNamespace, Name: mailSecret},
			Type:       corev1.SecretTypeBasicAuth,
			Data: map[string][]byte{
				corev1.BasicAuthUsernameKey: []byte(mailUser),
				corev1.BasicAuthPasswordKey: []byte(rand.Text()),
			},
		}
		err = c.Create(ctx, secret, client.FieldOwner(v1alpha1.FieldManagerCLI))
	}
	if err != nil {
		return access, fmt.Errorf("create Secret %s of the mail sink: %w", mailSecret, err)
	}
	access.username, access.password = string(secret.Data[corev1.BasicAuthUsernameKey]), string(secret.Data[corev1.BasicAuthPasswordKey])
	if access.username == "" || access.password == "" {
		return access, fmt.Errorf("the Secret %s in namespace %s lacks %s or %s: add it, or delete the Secret to create it again",
			mailSecret, v1alpha1.SystemNamespace, corev1.BasicAuthUsernameKey, corev1.BasicAuthPasswordKey)
	}
	return access, nil
}

// mailConfig returns the configuration with which lifecycle sends all mail to the
// mail sink. It has no rate limit: a step of policy time can make months of mail
// due at once.
func (s componentContext) mailConfig() *lifecycleconfig.Mail {
	return &lifecycleconfig.Mail{
		Server:            s.mail.server,
		TLS:               lifecycleconfig.MailStartTLS,
		CAFile:            s.mail.caFile,
		From:              "Sluice <sluice@" + mailDomain + ">",
		Domain:            mailDomain,
		Auth:              lifecycleconfig.MailPlain,
		CredentialsSecret: &lifecycleconfig.SecretReference{Namespace: v1alpha1.SystemNamespace, Name: mailSecret},
		Rate:              lifecycleconfig.MailRate{PerMinute: ptr.To(0), PerRecipientPerDay: ptr.To(0)},
	}
}

func mailsinkCommand(s componentContext) (process.Spec, error) {
	self, err := os.Executable()
	if err != nil {
		return process.Spec{}, err
	}
	certificates := filepath.Join(s.dir, "certificates")
	if err := s.cluster.IssueServing("localhost", certificates); err != nil {
		return process.Spec{}, err
	}
	err = mailsink.WriteConfig(s.configFile(), mailsink.Config{
		Listen: s.mail.server, Dir: MailDir(s.cluster.Dir()), Certificates: certificates,
		Username: s.mail.username, Password: s.mail.password,
	})
	return process.Spec{Path: self, Args: []string{"simulate", "mail", "--config", s.configFile()}, Ready: mailsink.Ready(s.mail.server)}, err
}
