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
	"sluice.dev/test/cluster/mailsink"
	"sluice.dev/test/cluster/process"
)

const (
	mailsinkName = "mailsink"
	// mailSecret has what lifecycle tells the mail sink. Lifecycle may read it by this
	// name.
	mailSecret = "sluice-mail"
	mailUser   = "lifecycle"
	// mailDomain is nobody's: the name is reserved (RFC 2606).
	mailDomain = "cluster.example"
)

// MailDir is the folder of the mails of the embedded cluster in dir.
func MailDir(dir string) string { return filepath.Join(dir, "mail") }

// mailAccess is how mails reach the mail sink.
type mailAccess struct {
	// server is its host and port, and authority the file with the certificate of who
	// vouches for it.
	server, authority  string
	username, password string
}

// installMail makes the Secret of the mail sink, once in a cluster's life, and returns
// what is in it. The sink is the first of the ports.
func installMail(ctx context.Context, c client.Client, ports []int) (mailAccess, error) {
	access := mailAccess{server: net.JoinHostPort("127.0.0.1", strconv.Itoa(ports[0]))}
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
		return access, fmt.Errorf("the mail sink's Secret %s: %w", mailSecret, err)
	}
	access.username, access.password = string(secret.Data[corev1.BasicAuthUsernameKey]), string(secret.Data[corev1.BasicAuthPasswordKey])
	if access.username == "" || access.password == "" {
		return access, fmt.Errorf("the Secret %s in namespace %s lacks %s or %s: put it right, or delete it and it is made anew",
			mailSecret, v1alpha1.SystemNamespace, corev1.BasicAuthUsernameKey, corev1.BasicAuthPasswordKey)
	}
	return access, nil
}

// mailConfig has lifecycle send all mail to the mail sink. There is no limit to how
// much: where policy time is stepped, months of mail come at once.
func (s componentContext) mailConfig() *lifecycleconfig.Mail {
	return &lifecycleconfig.Mail{
		Server:            s.mail.server,
		TLS:               lifecycleconfig.MailStartTLS,
		CAFile:            s.mail.authority,
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
	path := filepath.Join(s.dir, "config.yaml")
	err = mailsink.WriteConfig(path, mailsink.Config{
		Listen: s.mail.server, Dir: MailDir(s.cluster.Dir()), Certificates: certificates,
		Username: s.mail.username, Password: s.mail.password,
	})
	return process.Spec{Path: self, Args: []string{"simulate", "mail", "--config", path}, Ready: mailsink.Ready(s.mail.server)}, err
}
