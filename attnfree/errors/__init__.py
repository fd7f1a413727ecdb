"What is refused, and in which words: arguments, files, pictures."
