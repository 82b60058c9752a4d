"""Certificate authorities are loaded once."""

import ssl

from usechat.certificates import verification


def test_authorities_are_loaded_once_and_certificates_are_required() -> None:
    authorities = verification()
    assert isinstance(authorities, ssl.SSLContext)
    assert (authorities.verify_mode, authorities.check_hostname) == (ssl.CERT_REQUIRED, True)
    assert verification(True) is authorities


def test_what_a_user_chose_stays() -> None:
    own = ssl.create_default_context()
    assert verification(own) is own
    assert verification(False) is False
