// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package smtp

// enhancedCode is a code of RFC 3463 and of the registry of RFC 5248; zero without one.
type enhancedCode struct{ class, subject, detail int }

// classifyReply returns the kind of failure for a reply at a stage.
//
// A 4yz reply is Temporary at every stage (RFC 5321 section 4.2.1), also 421 when the
// server closes (section 3.8), 454 to STARTTLS (RFC 3207 section 4) and 454 to AUTH
// (RFC 4954 section 6); but 432 to AUTH requests a password change (RFC 4954 section
// 6) and is Configuration.
//
// A 5yz reply:
//
//	stage      reply                              kind           why
//	greeting   554, 521                           Configuration  no service for this client: RFC 5321 3.1, RFC 7504
//	EHLO       any                                Configuration  the name is refused: RFC 5321 4.1.1.1, 4.1.4
//	STARTTLS   any                                Configuration  RFC 3207 4
//	AUTH       any                                Configuration  534, 535, 538, 500, 504: RFC 4954 4 and 6
//	MAIL       552, x.2.3, x.3.4                  Recipient      the message is too large: RFC 1870 6.1, RFC 3463 3.3, 3.4
//	           x.6.*                              Recipient      it cannot be converted, SMTPUTF8: RFC 3463 3.7, RFC 6531 3.5
//	           others (530, 550, 553, x.7.*)      Configuration  the sender is ours: RFC 5321 4.1.1.2, RFC 4954 6
//	RCPT       552, x.2.2                         Temporary      the mailbox is full: RFC 5321 4.5.3.1.10, RFC 3463 3.3
//	           523, 530, 534, 535, 538            Denied         authentication or TLS is required: RFC 4954 6, RFC 5248
//	           500, 502, 503, 504, 555            Denied         the command is not understood: RFC 5321 4.2.2, 4.1.1.11
//	           x.7.2, x.7.17, x.7.18, x.7.124,    Recipient      a list or mailbox that admits certain senders only, or
//	           x.7.129 to x.7.139                                that changed hands: RFC 3463 3.8, RFC 7293
//	           other x.7.*                        Denied         relaying denied, and the like: RFC 3463 3.8
//	           others (501, 550, 551, 553, 554)   Recipient      RFC 5321 3.3, 3.4, 4.1.1.3, RFC 3463 3.2
//	DATA       as RCPT                                           RFC 5321 3.3, 4.1.1.4
//	end        x.2.2                              Temporary      the mailbox is full: RFC 3463 3.3
//	           523, 530, 534, 535, 538            Denied         RFC 4954 6
//	           x.7.8 to x.7.14, x.7.20 to x.7.30  Denied         credentials, encryption, DKIM, SPF, reverse DNS, REQUIRETLS:
//	                                                             RFC 4954 6, RFC 5248, RFC 7372, RFC 7505, RFC 8689
//	           others (552, 554, x.6.*, x.7.1)    Recipient      this content is refused: RFC 5321 4.2.5, RFC 3463 3.7
//
// Exchange uses 5.7.12x and 5.7.13x for restricted groups and mailboxes. 5.7.1 has two
// meanings: at RCPT mostly a relay that does not accept the sender, or this domain; at the
// end of the message a content filter, which refuses this message only.
//
// After MAIL no reply is Configuration: another recipient may be accepted.
//
// Any other unexpected reply, such as 250 to DATA, is out of step: Temporary, and Unknown
// after the final dot.
func classifyReply(stage Stage, code int, status enhancedCode) FailureKind {
	switch {
	case code/100 == 4:
		if stage == StageAuth && code == 432 {
			return ConfigurationFailure
		}
		return TemporaryFailure
	case code/100 != 5:
		return kindWithoutReply(stage)
	}
	switch stage {
	case StageMail:
		return classifyMailReply(code, status)
	case StageRcpt, StageData:
		return classifyRcptReply(code, status)
	case StageFinal:
		return classifyFinalReply(code, status)
	default:
		return ConfigurationFailure
	}
}

// kindWithoutReply returns the kind of failure if no valid reply was received.
func kindWithoutReply(stage Stage) FailureKind {
	if stage == StageFinal {
		return UnknownOutcome
	}
	return TemporaryFailure
}

func classifyMailReply(code int, status enhancedCode) FailureKind {
	tooLarge := code == 552 || status.matches(2, 3) || status.matches(3, 4)
	if tooLarge || status.subject == 6 {
		return RecipientFailure
	}
	return ConfigurationFailure
}

func classifyRcptReply(code int, status enhancedCode) FailureKind {
	switch code {
	case 552:
		return TemporaryFailure
	case 523, 530, 534, 535, 538, 500, 502, 503, 504, 555:
		return DeniedFailure
	}
	if status.matches(2, 2) {
		return TemporaryFailure
	}
	if status.subject == 7 && !status.isRestrictedRecipient() {
		return DeniedFailure
	}
	return RecipientFailure
}

func classifyFinalReply(code int, status enhancedCode) FailureKind {
	switch code {
	case 523, 530, 534, 535, 538:
		return DeniedFailure
	}
	if status.matches(2, 2) {
		return TemporaryFailure
	}
	if status.subject == 7 && (8 <= status.detail && status.detail <= 14 || 20 <= status.detail && status.detail <= 30) {
		return DeniedFailure
	}
	return RecipientFailure
}

func (e enhancedCode) matches(subject, detail int) bool {
	return e.subject == subject && e.detail == detail
}

// isRestrictedRecipient reports whether a refusal of subject 7 concerns who may write to this
// recipient.
func (e enhancedCode) isRestrictedRecipient() bool {
	switch e.detail {
	case 2, 17, 18, 124:
		return true
	}
	return 129 <= e.detail && e.detail <= 139
}
