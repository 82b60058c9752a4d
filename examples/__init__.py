"""Small programs that show what usechat does."""
